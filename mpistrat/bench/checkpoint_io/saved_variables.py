"""`SavedVariables`: variables with known bits, to be saved and restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["LEAST_BYTES", "SavedVariables"]

_COUNT = 8
LEAST_BYTES = 4 * _COUNT
"""One element of each variable."""

_PERIOD = 1 << 24  # whole numbers that float32 holds exactly


class SavedVariables:
    """Variables of float32 on all ranks of a strategy, and their checkpoint.

    Parameters
    ----------
    strategy
        Whose ranks save and restore together. Each has all of the variables.
    wanted_bytes
        Size of all variables together, at least `LEAST_BYTES`; rounded down to whole elements.
    """

    def __init__(self, strategy: mpistrat.Strategy, wanted_bytes: int) -> None:
        self._length = wanted_bytes // LEAST_BYTES
        with strategy.scope():
            self._variables = [mpistrat.Variable(one) for one in self._values()]
            self._checkpoint = mpistrat.train.Checkpoint(
                **{f"variable_{index}": one for index, one in enumerate(self._variables)}
            )

    @property
    def nbytes(self) -> int:
        """Size of all variables."""
        return 4 * self._length * _COUNT

    def save(self, path: Path) -> None:
        """Save to a new folder; return when all is on the disk. **Collective.**"""
        self._checkpoint.write(path)

    def restore(self, path: Path) -> None:
        """Restore all variables. **Collective.**"""
        self._checkpoint.read(path).assert_consumed()

    def forget(self) -> None:
        """Set all variables to -1, which none of them holds. **Collective.**"""
        for variable in self._variables:
            variable.assign(np.full(self._length, -1, np.float32))

    def are_right(self) -> bool:
        """Return whether this rank's variables hold their first bits. **Local.**"""
        pairs = zip(self._variables, self._values(), strict=True)
        return all(variable.numpy().tobytes() == value.tobytes() for variable, value in pairs)

    def _values(self) -> Iterator[Array]:
        for index in range(_COUNT):
            numbers = (index * self._length + np.arange(self._length)) % _PERIOD
            yield numbers.astype(np.float32)
