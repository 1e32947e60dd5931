"""`PlainFile`: one array that rank 0 alone writes and reads, as the bound of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

__all__ = ["PlainFile"]


class PlainFile:
    """An array of as many bytes as the variables. **Local** to rank 0.

    Parameters
    ----------
    path
        Of the file.
    nbytes
        Size of the array.
    is_used
        False on the other ranks, which do nothing.
    """

    def __init__(self, path: Path, nbytes: int, is_used: bool) -> None:
        self._path, self._is_used = path, is_used
        # Written, so that no page is the kernel's page of zeros.
        self._array = np.arange(nbytes // 4 if is_used else 0, dtype=np.float32)
        self._read = np.zeros_like(self._array)

    def save(self) -> None:
        """Write it by ``np.save``, and wait until it is on the disk."""
        if self._is_used:
            with self._path.open("wb") as file:
                np.save(file, self._array)
                file.flush()
                os.fsync(file.fileno())

    def restore(self) -> None:
        """Read it by ``np.load``."""
        if self._is_used:
            self._read = np.load(self._path, allow_pickle=False)

    def is_right(self) -> bool:
        """Return whether what was read is what was written."""
        return self._read.tobytes() == self._array.tobytes()

    def delete(self) -> None:
        """Delete the file."""
        if self._is_used:
            self._path.unlink()
            self._read = np.zeros_like(self._array)
