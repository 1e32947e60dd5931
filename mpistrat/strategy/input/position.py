"""`DataPosition`: save how far a distributed data set has been read, and go on there."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["DataPosition"]


class DataPosition:
    """The position in a distributed data set, for a checkpoint: ``Checkpoint(data=it)``.

    It is two numbers, a pass over the data and the steps done in it: the order of a pass follows
    from its number and the seed. Of ``mpistrat.data`` sets what is left out is not loaded, unless
    by ``map``, ``from_generator`` or `AutoShardPolicy.OFF`; other data sets are read again up to
    there, and have to give the same in each pass.

    Parameters
    ----------
    tell
        Returns the two numbers.
    seek
        Takes them.
    """

    def __init__(
        self, tell: Callable[[], tuple[int, int]], seek: Callable[[int, int], None]
    ) -> None:
        self._tell, self._seek = tell, seek

    def state_dict(self) -> dict[str, int]:
        """Return the two numbers by name. **Local**, the same on all ranks."""
        epoch, steps = self._tell()
        return {"epoch": epoch, "steps": steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next ``iter()`` of the data set go on from there. **Local.**"""
        self._seek(state["epoch"], state["steps"])
