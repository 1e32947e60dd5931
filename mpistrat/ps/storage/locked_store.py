"""The storage of a shard without the kernels: arrays of one process, and a lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mpistrat.tables import rows as row_functions
from mpistrat.tables.rows import DONE
from mpistrat.types import Array

__all__ = ["LockedStore"]


class LockedStore:
    """An array that threads change and read; all copies are of one version.

    The methods are those of `mpistrat.ps.storage.shared_store.OwnedStore`.
    """

    def __init__(self, value: Array) -> None:
        self.shape, self.dtype = value.shape, value.dtype
        self._current = np.array(value, order="C")
        self._spare: Array | None = None
        self._leases: dict[int, int] = {}  # how many views there are of a buffer, by its id
        self.version = 0
        self.lock = threading.RLock()
        self._pid = os.getpid()

    def check_process(self) -> None:
        """Allow all: a process that was forked has a copy of its own."""

    def read(self, out: Array, is_whole: bool, budget_ns: int = 0) -> int:
        """Copy all."""
        with self.lock:
            out[...] = self._current
        return DONE

    def take(self, rows: Array, out: Array, is_whole: bool, budget_ns: int = 0) -> int:
        """Copy rows."""
        with self.lock:
            return row_functions.take_rows(self._current, rows, out)

    @contextmanager
    def view(self, budget_ns: int = 0) -> Iterator[Array | None]:
        """Lend the current array; changes go to other memory meanwhile."""
        with self.lock:
            buffer = self._current
            self._leases[id(buffer)] = self._leases.get(id(buffer), 0) + 1
        lent = buffer.view()
        lent.flags.writeable = False
        try:
            yield lent
        finally:
            with self.lock:
                self._leases[id(buffer)] -= 1
                if not self._leases[id(buffer)]:
                    del self._leases[id(buffer)]

    def put(self, rows: Array, values: Array) -> int:
        """Replace rows."""
        wrong = row_functions.first_wrong(rows, len(self._current))
        if wrong == DONE:
            with self._changing() as array:
                row_functions.put_rows(array, rows, values)
        return wrong

    def add(self, rows: Array, values: Array) -> int:
        """Add to rows."""
        wrong = row_functions.first_wrong(rows, len(self._current))
        if wrong == DONE:
            with self._changing() as array:
                row_functions.add_rows(array, rows, values)
        return wrong

    def fill(self, value: Array) -> None:
        """Replace all."""
        with self._changing(is_apart=True) as array:
            array[...] = value.reshape(self.shape)

    def sum(self, value: Array) -> None:
        """Add to all."""
        with self._changing() as array:
            np.add(array, value.reshape(self.shape), out=array)

    @contextmanager
    def rewriting(self) -> Iterator[Array]:
        """Give the array to change in any way; all see it at the end, and wait until then."""
        with self._changing(is_apart=True) as array:
            array[...] = self._current
            yield array

    @contextmanager
    def replacing(self) -> Iterator[tuple[Array, Array]]:
        """Give the array, to be read, and memory for a new one, all of which is to be written."""
        with self._changing(is_apart=True) as array:
            yield self._current, array

    @contextmanager
    def _changing(self, is_apart: bool = False) -> Iterator[Array]:
        """Give memory to change, which holds the current value unless it is to be apart."""
        with self.lock:
            array = self._current
            if is_apart or id(array) in self._leases:
                array = self._free_buffer()
                if not is_apart:
                    array[...] = self._current
            yield array
            # Not reached if the block raises: readers keep the array from before.
            if array is not self._current:
                self._spare, self._current = self._current, array
            self.version += 1

    def _free_buffer(self) -> Array:
        if self._spare is None or id(self._spare) in self._leases:
            return np.empty(self.shape, self.dtype)
        return self._spare

    def close(self) -> None:
        """Do nothing."""
