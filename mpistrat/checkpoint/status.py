"""`CheckpointStatus`: the objects that a restore has matched, and those that it has not."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from mpistrat.errors import CheckpointMismatchError
from mpistrat.system import log

__all__ = ["CheckpointStatus"]

_LOG = log.get_logger(__name__)
_SHOWN = 10


class _Unasked:
    """The warning that is logged unless a method of the status is called."""

    def __init__(self, text: str) -> None:
        self.text = text

    def say(self) -> None:
        if self.text:
            _LOG.warning("%s; call expect_partial() on what restore() returns if so", self.text)


class CheckpointStatus:
    """Tell which objects were restored, and which values of the checkpoint were used.

    Returned by ``Checkpoint.restore`` and ``read``. All its methods are **Local**.

    Parameters
    ----------
    path
        The checkpoint; None if there was none.
    restored
        How many tensors, states and numbers were restored.
    missing
        What the program has and the checkpoint has not.
    unused
        What the checkpoint has and the program has not. Unless a method of this object is called,
        a warning lists it in the end.

    References
    ----------
    The status of tf.train.Checkpoint.restore. There is no deferred restoration: what the program
    makes later keeps its own values until the next ``restore``.
    """

    def __init__(
        self, path: str | None, restored: int, missing: Sequence[str], unused: Sequence[str]
    ) -> None:
        self._path, self._restored = path, restored
        self._missing, self._unused = list(missing), list(unused)
        text = f"{path} holds what was not restored: {_list(self._unused)}" if unused else ""
        self._unasked = _Unasked(text)
        # A method of another object: one of `self` would keep this status from being collected.
        weakref.finalize(self, self._unasked.say)

    @property
    def num_restored(self) -> int:
        """How many tensors, states and numbers were restored."""
        return self._restored

    def assert_consumed(self) -> CheckpointStatus:
        """Raise unless all of the checkpoint was used, and all of the program restored.

        Raises
        ------
        CheckpointMismatchError
            An ``AssertionError`` too. It lists what was left on either side.
        """
        self.assert_existing_objects_matched()
        if self._unused:
            self._fail("it holds what the program has not", self._unused)
        return self

    def assert_existing_objects_matched(self) -> CheckpointStatus:
        """Raise unless all of the program was restored; more may be in the checkpoint.

        Raises
        ------
        CheckpointMismatchError
            It lists what was not.
        """
        self._unasked.text = ""
        if self._path is None:
            raise CheckpointMismatchError("nothing was restored: the path was None")
        if self._missing:
            self._fail("it does not hold", self._missing)
        return self

    def assert_nontrivial_match(self) -> CheckpointStatus:
        """Raise unless something was restored; ``save_counter`` alone is nothing.

        Raises
        ------
        CheckpointMismatchError
            Program and checkpoint have nothing in common.
        """
        self._unasked.text = ""
        if not self._restored:
            self._fail("nothing in it was wanted", self._missing)
        return self

    def expect_partial(self) -> CheckpointStatus:
        """Log no warning about objects and values without a match."""
        self._unasked.text = ""
        return self

    def _fail(self, what: str, names: Sequence[str]) -> None:
        raise CheckpointMismatchError(
            f"checkpoint {self._path}: {what}: {_list(names)}; make the objects before restore(),"
            " under the names that they were saved by"
        )


def _list(names: Sequence[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
