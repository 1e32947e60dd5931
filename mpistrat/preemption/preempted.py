"""`Preempted`: end a program after it has saved, with exit status 0 and without a traceback."""

from __future__ import annotations

__all__ = ["Preempted"]


class Preempted(SystemExit):
    """All ranks have stopped after the same step, and the job asks to be started again.

    It leaves ``with`` blocks and ends the program with exit status 0, as ``sys.exit(0)`` does.
    ``except Exception`` does not catch it.

    Attributes
    ----------
    step
        Number of steps that this process has done since it started.
    saved
        Path of the checkpoint that counts; None if there is none.
    """

    def __init__(self, step: int = 0, saved: str | None = None) -> None:
        super().__init__(0)
        self.step, self.saved = step, saved
