"""Arrays that one process changes while others read them, by the kernels (kernels/store/)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.errors import CommunicationTimeoutError, ContextError, MpistratError
from mpistrat.ps.storage.memory import PrivateMemory, SharedMemory
from mpistrat.system.kernels import kernels
from mpistrat.system.liveness.tagged_process import has_ended
from mpistrat.system.processes.process_tag import my_tag, pid_of
from mpistrat.system.waiting import wait_until
from mpistrat.tables.rows import DONE
from mpistrat.types import Array

__all__ = ["OwnedStore", "StoreReader", "gather"]

_BUSY = -4  # MpistratStoreResult of kernels/include/mpistrat/store.h
_TEND_S = 0.1
_POLL_S = 1e-4


class _NoMemoryError(MpistratError, MemoryError):
    pass


class StoreReader:
    """What every process can do with a store.

    Parameters
    ----------
    memory
        Where it is.
    shape, dtype
        Of the array.
    is_new
        Whether it was just made, of zeros.
    """

    def __init__(
        self,
        memory: PrivateMemory | SharedMemory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        is_new: bool = False,
    ) -> None:
        self.shape, self.dtype, self.memory = shape, dtype, memory
        extent = memory.extent
        self.native = kernels().Store(
            memory,
            memory.address,
            extent.num_rows,
            extent.row_bytes,
            extent.num_buffers,
            is_new,
        )
        self._pid, self._tag = os.getpid(), my_tag()

    @property
    def version(self) -> int:
        """How many changes were made."""
        return int(self.native.version)

    def check_process(self) -> None:
        """Raise in a process that was forked from the one that uses this."""
        if os.getpid() != self._pid:
            raise ContextError(
                f"a shard of process {self._pid} used in process {os.getpid()}, which was forked"
                " from it; expected a handle, attached in the new process"
            )

    def read(self, out: Array, is_whole: bool, budget_ns: int) -> int:
        """Copy all to an array in C order; returns `DONE`, or less if it changed all the time."""
        return int(self.native.read(out, is_whole, budget_ns))

    def take(self, rows: Array, out: Array, is_whole: bool, budget_ns: int) -> int:
        """Copy rows; returns as `read`, or the position of the first index that is no row."""
        return int(self.native.take(rows, out, is_whole, budget_ns))

    @contextmanager
    def view(self, budget_ns: int) -> Iterator[Array | None]:
        """Lend the current array, or None if there are too many views or a change does not end."""
        lease, buffer, _ = self.native.lease(self._tag, budget_ns)
        if lease < 0:
            yield None
            return
        try:
            array = self.array(buffer)
            array.flags.writeable = False
            yield array
        finally:
            if os.getpid() == self._pid:  # else it is the parent's
                self.native.release(lease)

    def array(self, buffer: int) -> Array:
        """Return a buffer's data."""
        return self.memory.view(buffer).view(self.dtype).reshape(self.shape)


def gather(stores: Sequence[Any], edges: Array, rows: Array, out: Array, budget_ns: int) -> int:
    """Copy rows of a table in parts; returns as `StoreReader.take`."""
    natives = [one.native for one in stores]
    return int(kernels().gather(natives, edges, rows, out, budget_ns))


class OwnedStore(StoreReader):
    """A store and the right to change it, in the process that made it."""

    def __init__(self, memory: PrivateMemory | SharedMemory, value: Array) -> None:
        super().__init__(memory, value.shape, value.dtype, is_new=True)
        self.lock = threading.RLock()  # of changes
        self._allocated = {0}
        self._tended_s = 0.0
        self._dtype_code = kernels().dtype_of(value)
        memory.allocate(0)
        self.native.fill(0, np.ascontiguousarray(value))  # version 0, nobody reads yet

    def read(self, out: Array, is_whole: bool, budget_ns: int) -> int:
        """Copy all; between two changes, if it does not succeed otherwise."""
        result = super().read(out, is_whole, budget_ns)
        if result == _BUSY:
            with self.lock:
                # Changes need this lock, so nothing is changed during this attempt.
                result = super().read(out, is_whole, 0)
        return result

    def take(self, rows: Array, out: Array, is_whole: bool, budget_ns: int) -> int:
        """Copy rows; as `read`."""
        result = super().take(rows, out, is_whole, budget_ns)
        if result == _BUSY:
            with self.lock:
                result = super().take(rows, out, is_whole, 0)
        return result

    # ------------------------------------------------------------------------------- changes

    def put(self, rows: Array, values: Array) -> int:
        """Replace rows; returns `DONE`, or less or a position, with nothing changed."""
        return self._change_rows(lambda buffer: self.native.put(buffer, rows, values))

    def add(self, rows: Array, values: Array) -> int:
        """Add to rows; as `put`."""
        code = self._dtype_code
        return self._change_rows(lambda buffer: self.native.add(buffer, rows, values, code))

    def fill(self, value: Array) -> None:
        """Replace all."""
        with self.lock, self._rewriting(keeps=False) as buffer:
            self.native.fill(buffer, value)

    def sum(self, value: Array) -> None:
        """Add to all."""
        with self.lock, self._rewriting(keeps=False) as buffer:
            self.native.sum(buffer, value, self._dtype_code)

    @contextmanager
    def rewriting(self) -> Iterator[Array]:
        """Give the array to change in any way; all see it at the end, unless there is an error."""
        with self.lock, self._rewriting(keeps=True) as buffer:
            yield self.array(buffer)

    @contextmanager
    def replacing(self) -> Iterator[tuple[Array, Array]]:
        """Give the array, to be read, and memory for a new one, all of which is to be written.

        Both are the same where there is no memory for another one.
        """
        with self.lock:
            old = self.native.current
            with self._rewriting(keeps=False) as buffer:
                yield self.array(old), self.array(buffer)

    def _change_rows(self, write: Callable[[int], int]) -> int:
        native = self.native
        with self.lock:
            self._tend()
            if not native.begin():
                # A view holds the current buffer: the rows change in a copy, which then is the
                # current one.
                return self._change_rows_of_copy(write)
            result = DONE
            try:
                result = int(write(native.current))
            finally:
                if result == DONE:
                    native.finish()
                else:
                    # The kernels check all indices before they write any row, so nothing has to be
                    # undone.
                    native.cancel()
            return result

    def _change_rows_of_copy(self, write: Callable[[int], int]) -> int:
        buffer = self._other_buffer()
        self.native.begin_in(buffer)
        self.native.fill(buffer, None)
        result = int(write(buffer))
        if result == DONE:
            self.native.finish_in(buffer)
            self._trim()
        return result

    @contextmanager
    def _rewriting(self, keeps: bool) -> Iterator[int]:
        """Begin and end a change of all in another buffer, or in place if there is no memory."""
        native = self.native
        self._tend()
        try:
            buffer = self._other_buffer()
        except _NoMemoryError:
            # In place only if no view holds the buffer; other readers wait until finish_in.
            if not native.begin():
                raise
            native.begin_in(native.current)
            try:
                yield native.current
            finally:  # also half done: there is no other copy
                native.finish_in(native.current)
            return
        native.begin_in(buffer)
        if keeps:
            native.fill(buffer, None)
        # If the block raises, finish_in is not called and this buffer never becomes the current
        # one.
        yield buffer
        native.finish_in(buffer)
        self._trim()

    # ------------------------------------------------------------------------------- buffers

    def _other_buffer(self) -> int:
        """Return a buffer that nobody uses, with memory."""
        buffers = self._unused() or self._wait_for_buffers()
        # Those with memory come first: each other one takes memory as large as the shard.
        buffer = min(buffers, key=lambda one: (one not in self._allocated, one))
        if buffer not in self._allocated:
            self._allocate(buffer)
        return buffer

    def _wait_for_buffers(self) -> list[int]:
        """Wait for readers to give back a buffer; they do soon, see mpistrat_store_leased."""
        found: list[int] = []

        def find() -> list[int]:
            found[:] = self._unused()
            return found

        # A process that ended with views still holds their buffers: `_tend` ends its leases.
        if not wait_until(find, config.timeout_s(), _POLL_S, look=lambda _: self._tend()):
            raise CommunicationTimeoutError(
                f"all {self.memory.extent.num_buffers} buffers of a shard of shape"
                f" {self.shape} are held by {self._holders()}; expected one to be free"
            )
        return found

    def _unused(self) -> list[int]:
        taken = self.native.leased | 1 << self.native.current
        return [b for b in range(self.memory.extent.num_buffers) if not taken >> b & 1]

    def _allocate(self, buffer: int) -> None:
        try:
            self.memory.allocate(buffer)
        except OSError as error:
            raise _NoMemoryError(
                f"no memory for another buffer of a shard of shape {self.shape}, dtype"
                f" {self.dtype}: {error}; views are held by {self._holders()}"
            ) from error
        self._allocated.add(buffer)

    def _trim(self) -> None:
        """Give back what views needed once: all but the current buffer and one to write next."""
        idle = sorted(self._allocated.intersection(self._unused()))
        for buffer in idle[1:]:
            self.native.begin_in(buffer)  # late readers see that it changes
            self.memory.discard(buffer)
            self._allocated.discard(buffer)

    def _tend(self) -> None:
        """Now and then, end the leases of processes that have ended."""
        now = time.monotonic()
        if not self.native.leased or now - self._tended_s < _TEND_S:
            return
        self._tended_s = now
        for lease, tag in enumerate(self.native.tags()):
            if tag not in (0, self._tag) and has_ended(tag):
                self.native.drop(lease, tag)
        self._trim()

    def _holders(self) -> str:
        pids = sorted({pid_of(tag) for tag in self.native.tags() if tag})
        return f"processes {', '.join(map(str, pids))}" if pids else "nobody"
