"""Evaluate each new checkpoint of a folder once, while another program trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger

__all__ = ["Evaluations", "no_evaluator"]

_LOG = get_logger(__name__)

_LOOK_S = 0.2  # between two looks for a new checkpoint


class Evaluations:
    """The progress of an evaluator: the checkpoints it has evaluated, and when it ends.

    Parameters
    ----------
    latest
        Returns the path of the newest checkpoint, or None.
    restore
        Restores the checkpoint at a path.
    errors
        What `restore` raises if files are missing: old checkpoints are deleted meanwhile.
    evaluate
        Called with a checkpoint's path once it is restored.
    max_evaluations
        Evaluate no more than so many; None for no limit.

    Raises
    ------
    UsageError
        `max_evaluations` is not above 0.
    """

    def __init__(
        self,
        latest: Callable[[], str | None],
        restore: Callable[[str], object],
        errors: tuple[type[Exception], ...],
        evaluate: Callable[[str], Any],
        max_evaluations: int | None,
    ) -> None:
        if max_evaluations is not None and max_evaluations <= 0:
            raise UsageError(
                f"max_evaluations={max_evaluations}; expected a number above 0, or None"
            )
        self._latest, self._restore, self._errors = latest, restore, errors
        self._evaluate, self._most = evaluate, max_evaluations
        self.results: list[tuple[str, Any]] = []
        self._last: str | None = None  # the path of what was evaluated last
        self._is_over = False

    def start(self, follow_training: Callable[[], object]) -> list[tuple[str, Any]]:
        """Evaluate until the training is over; if it was before, what was saved since.

        Parameters
        ----------
        follow_training
            Calls `follow` and leaves the job, once: after that there is nobody to wait for.

        Returns
        -------
        list of (str, object)
            The path and the result of each evaluation so far.
        """
        if self._is_over:
            self.follow(lambda _: True)
        else:
            follow_training()
            self._is_over = True
        return self.results

    def follow(self, wait: Callable[[float], bool]) -> None:
        """Evaluate new checkpoints until the requested number is reached or training is over.

        Another call goes on: what this one has evaluated is not evaluated again.

        Parameters
        ----------
        wait
            Waits for the end of the training, for so many seconds at most; tells if it is over.
        """
        is_over = False
        while self._most is None or len(self.results) < self._most:
            path = self._latest()
            if path is not None and path != self._last and self._is_restored(path):
                self.results.append((path, self._evaluate(path)))
                self._last = path
            elif is_over:
                break
            else:
                is_over = wait(_LOOK_S)  # then it looks once more

    def _is_restored(self, path: str) -> bool:
        """Restore a checkpoint; return False if it was deleted meanwhile."""
        try:
            self._restore(path)
        except self._errors as error:
            # It is still the newest, so it was not deleted, and the error is one of the
            # checkpoint.
            if self._latest() == path:
                raise
            _LOG.info("%s was deleted before it was read: %s", path, error)
            return False
        return True


def no_evaluator(who: object) -> UsageError:
    """Return the error of a `SidecarEvaluator` on a rank with another role."""
    return UsageError(
        f"SidecarEvaluator of {who}; expected the Server of a rank whose resolver.task_type is"
        " 'evaluator': MPIClusterResolver(num_ps=1, num_evaluators=1) has one"
    )
