"""Memory on a GPU that the other ranks of the node can read and write, by handles of the driver.

It is allocated apart from CuPy's pool, whose memory other arrays share, and is long enough to have
a handle of its own. It is exported once and freed after all peers have closed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.facts import Facts, exchange_bytes
from mpistrat.system.processes.process_token import process_token

__all__ = ["Slabs"]

_HANDLE_BYTES = 64
_LEAST_BYTES = 2 << 20  # a driver puts shorter allocations into one block, with one handle


class Slabs:
    """The slab of this rank, and those of the other ranks as this process sees them.

    Parameters
    ----------
    host
        The backend over which handles are exchanged.
    everyone
        The facts of all ranks.
    nbytes
        Length of each rank's slab.

    Attributes
    ----------
    mine
        Address of this rank's slab once it is open, else 0.
    pointers
        Address of each rank's slab, by rank, in this process.
    """

    def __init__(self, host: Backend, everyone: Sequence[Facts], nbytes: int) -> None:
        self._host, self._everyone = host, everyone
        self.nbytes = nbytes
        self.pointers: list[int] = []
        self.mine = 0
        self._device = 0
        self._opened: list[int] = []

    def open(self) -> str | None:
        """Allocate this rank's slab; return why that failed, or None. **Local.**"""
        runtime = _runtime()
        try:
            self._device = runtime.getDevice()
            self.mine = _allocated(max(self.nbytes, _LEAST_BYTES))
        except runtime.CUDARuntimeError as error:
            free, total = runtime.memGetInfo()
            return (
                f"no {self.nbytes} bytes of the GPU's memory ({free} of {total} are free): {error}"
            )
        return None

    def meet(self) -> Steps:
        """Map the slabs of the other ranks; return why that failed, or None. **Collective.**"""
        runtime = _runtime()
        handle, reason = b"", None
        try:
            handle = runtime.ipcGetMemHandle(self.mine)
        except runtime.CUDARuntimeError as error:
            reason = f"its memory cannot be exported: {error}"
        word = self.mine.to_bytes(8, "little")
        row = word + handle.ljust(_HANDLE_BYTES, b"\0") + bytes([reason is None])
        rows = yield from exchange_bytes(self._host, row, len(row))
        if reason is None:
            reason = self._map([one.ljust(len(row), b"\0") for one in rows])
        return reason

    def _map(self, rows: list[bytes]) -> str | None:
        runtime = _runtime()
        me = process_token()
        for rank, row in enumerate(rows):
            handle, is_exported = row[8 : 8 + _HANDLE_BYTES], row[-1]
            if self._everyone[rank].process == me:  # this rank, or one of its threads
                self.pointers.append(int.from_bytes(row[:8], "little"))
                continue
            if not is_exported:
                return f"rank {rank} cannot export its memory"
            try:
                self.pointers.append(runtime.ipcOpenMemHandle(handle))
            except runtime.CUDARuntimeError as error:
                return f"the memory of rank {rank} cannot be mapped: {error}"
            self._opened.append(self.pointers[-1])
        return None

    def owned(self, owner: Any) -> Any:
        """Return this rank's slab as an array of bytes, which keeps `owner` alive. **Local.**"""
        import cupy

        memory = cupy.cuda.UnownedMemory(self.mine, self.nbytes, owner, self._device)
        return cupy.ndarray((self.nbytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def leave(self) -> None:
        """Close the slabs of the other ranks. **Local.**"""
        while self._opened:
            _runtime().ipcCloseMemHandle(self._opened.pop())
        self.pointers = []

    def close(self) -> None:
        """Free this rank's slab, after all others have left it. **Local.**"""
        import cupy

        with cupy.cuda.Device(self._device):  # also by arrays that outlive the communicator
            self.leave()
            if self.mine:
                _runtime().free(self.mine)
                self.mine = 0


def _allocated(nbytes: int) -> int:
    """Return new memory of the driver; if needed, CuPy's pools give back what they keep."""
    runtime = _runtime()
    try:
        return int(runtime.malloc(nbytes))
    except runtime.CUDARuntimeError:
        _empty_pools()
        return int(runtime.malloc(nbytes))


def _empty_pools() -> None:
    """Free what CuPy's pool keeps, and the pool of the user's own that is in its place."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    pool: Any = getattr(cupy.cuda.get_allocator(), "__self__", None)
    if hasattr(pool, "free_all_blocks"):
        pool.free_all_blocks()


def _runtime() -> Any:
    import cupy

    return cupy.cuda.runtime
