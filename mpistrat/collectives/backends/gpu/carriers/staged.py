"""Carry arrays on GPUs through the memory of the host: what works between any ranks.

Windows of the arrays are copied to pinned memory, moved or reduced by the backend of the host
(where they lie, if it can: memory/pinned_regions.py), and copied back. While the host has one
window, the GPU copies the next one down and the last one up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.all_or_none import new_memory
from mpistrat.collectives.backends.gpu.carriers.windows import Blocks, Part, Window, windows
from mpistrat.collectives.backends.gpu.memory.pinned_regions import pinned_region
from mpistrat.collectives.backends.gpu.streams import EventRequest, TransferStream
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.tables.reduction_ops import Carried, carried, narrow
from mpistrat.types import Array

__all__ = ["Staged"]

Move: TypeAlias = Callable[[Array, Array, Window], Steps]
"""A transfer of the host: the memory that is sent, the memory that receives, and the window."""


class _Slot:
    """Memory for one window on its way down, and for one on its way up."""

    def __init__(self, down: Array, up: Array) -> None:
        self.down, self.up = down, up
        self.copied_down: Any = None
        self.copied_up: Any = None


class Staged:
    """The carrier by the host's memory; see `Carrier`.

    Parameters
    ----------
    host
        The backend that moves and reduces windows.
    stream
        The transfer stream of this rank's GPU.
    buffer_bytes
        Size of each of the four pinned buffers; the same on all ranks.
    """

    name = "staged"

    def __init__(self, host: Backend, stream: TransferStream, buffer_bytes: int) -> None:
        self._host, self._stream, self._nbytes = host, stream, buffer_bytes
        self._window_bytes = buffer_bytes
        self._is_exact = host.capabilities().exact and host.size > 1
        self.widens_halves = not self._is_exact
        self._slots: list[_Slot] = []

    def open(self) -> str | None:
        """See `Carrier.open`: there is nothing."""
        return None

    def meet(self) -> Steps:
        """See `Carrier.meet`: makes the buffers, from which the node's ranks read if they can."""
        memory: Array | None = yield from pinned_region(self._host, 4 * self._nbytes)
        try:
            buffers = self._pinned() if memory is None else np.split(memory, 4)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others wait for the outcome
            return f"no {4 * self._nbytes} bytes of pinned memory: {error}"
        self._slots = [_Slot(*buffers[:2]), _Slot(*buffers[2:])]
        return None

    def _pinned(self) -> list[Array]:
        """Return four buffers of this rank alone."""
        from cupy.cuda import alloc_pinned_memory

        n = self._nbytes
        return [np.frombuffer(alloc_pinned_memory(n), np.uint8, n) for _ in range(4)]

    def leave(self) -> Steps:
        """See `Carrier.leave`: after an error copies may be under way."""
        yield self._stream.done()

    def tune(self, tuning: GpuTuning) -> None:
        """See `Carrier.tune`."""
        self._window_bytes = min(tuning.buffer_bytes, self._nbytes)

    def abort(self) -> None:
        """See `Carrier.abort`: they wait on the host."""

    def close(self) -> None:
        """See `Carrier.close`."""
        self._slots = []

    def allocate(self, nbytes: int) -> Steps:
        """See `Carrier.allocate`: it is memory like any other."""
        return new_memory(self._host, nbytes, np.uint8)

    # ---------------------------------------------------------------------------- reductions

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""

        def move(op: str, down: Array, up: Array, _: Window) -> Steps:
            return self._host.allreduce(down, up, op)

        return self._reduce(Blocks.one(send), recv, op, move)

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Carrier.reduce`."""

        def move(op: str, down: Array, up: Array, _: Window) -> Steps:
            return self._host.reduce(down, None if recv is None else up, op, root)

        return self._reduce(Blocks.one(send), recv, op, move)

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Carrier.reduce_scatter`."""

        def move(op: str, down: Array, up: Array, window: Window) -> Steps:
            return self._host.reduce_scatter(down, up, window.lengths(counts), op)

        return self._reduce(Blocks(send, counts), recv, op, move)

    def _reduce(
        self, send: Blocks, recv: Any | None, op: str, move: Callable[..., Steps]
    ) -> Steps:
        """Reduce as the host's backend can; widen before that, and round after it, on the GPU."""
        how = carried(op, send.array.dtype, self._is_exact)
        nans = self._nans(how, send)  # before a transfer in place overwrites them
        wide = Blocks(send.array.astype(how.dtype, copy=False), send.counts)
        total: Any = recv
        if recv is not None and recv.dtype != how.dtype:
            total = np.empty_like(recv, dtype=how.dtype)
        yield from self._reduced(wide, total, how.op, move)
        if nans is not None:
            anyone = None if recv is None else np.empty_like(recv, dtype=np.uint8)
            yield from self._reduced(nans, anyone, "max", move)
            if total is not None and anyone is not None:
                total[anyone != 0] = np.nan
        if recv is not None:
            found = narrow(op, total, recv.dtype, self._host.size, how)
            if found is not recv:
                recv[...] = found

    @staticmethod
    def _nans(how: Carried, send: Blocks) -> Blocks | None:
        """Return where NaN would be lost, if the host's backend could lose any."""
        if not (how.watches_nan and send.array.dtype.kind not in "biu"):
            return None
        return Blocks(np.isnan(send.array).view(np.uint8), send.counts)

    def _reduced(self, send: Blocks, recv: Any, op: str, move: Callable[..., Steps]) -> Steps:
        into = None if recv is None else Blocks.one(recv)
        longest = max(send.counts)

        def moved(down: Array, up: Array, window: Window) -> Steps:
            return move(op, down, up, window)

        return self._carry(send, into, longest, len(send.counts), moved)

    # ------------------------------------------------------------------------------ movement

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Carrier.bcast`."""

        def move(down: Array, up: Array, _: Window) -> Steps:
            return self._host.bcast(down if is_root else up, root)

        is_root, mine = self._host.rank == root, Blocks.one(buffer)
        send, recv = (mine, None) if is_root else (None, mine)
        return self._carry(send, recv, buffer.size, 1, move)

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Carrier.allgather`."""

        def move(down: Array, up: Array, window: Window) -> Steps:
            return self._host.allgather(down, up, window.lengths(counts))

        blocks = len(counts)
        return self._carry(Blocks.one(send), Blocks(recv, counts), max(counts), blocks, move)

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.gather`."""

        def move(down: Array, up: Array, window: Window) -> Steps:
            mine = None if recv is None else up
            return self._host.gather(down, mine, window.lengths(counts), root)

        into = None if recv is None else Blocks(recv, counts)
        return self._carry(Blocks.one(send), into, max(counts), len(counts), move)

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.scatter`."""

        def move(down: Array, up: Array, window: Window) -> Steps:
            mine = None if send is None else down
            return self._host.scatter(mine, up, window.lengths(counts), root)

        source = None if send is None else Blocks(send, counts)
        return self._carry(source, Blocks.one(recv), max(counts), len(counts), move)

    def alltoall(
        self,
        send: Any,
        recv: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        longest: int,
    ) -> Steps:
        """See `Carrier.alltoall`."""

        def move(down: Array, up: Array, window: Window) -> Steps:
            sent, received = window.lengths(send_counts), window.lengths(recv_counts)
            most = min(max(longest - window.start, 0), window.length)
            return self._host.alltoall(down, up, sent, received, most)

        blocks = self._host.size
        there, back = Blocks(send, send_counts), Blocks(recv, recv_counts)
        return self._carry(there, back, longest, blocks, move)

    # ------------------------------------------------------------------------------- windows

    def _carry(
        self, send: Blocks | None, recv: Blocks | None, longest: int, blocks: int, move: Move
    ) -> Steps:
        """Copy each window down, let the host `move` it, and copy what came of it up."""
        itemsize = (send or recv).array.itemsize  # type: ignore[union-attr]
        cut = list(windows(longest, itemsize, blocks, self._window_bytes))
        for number, window in enumerate(cut):
            slot = self._slots[number % 2]
            if number == 0:
                self._copy_down(slot, send, window)
            yield EventRequest(slot.copied_down)
            if number + 1 < len(cut):  # the next one, meanwhile
                other = self._slots[(number + 1) % 2]
                self._copy_down(other, send, cut[number + 1])
            if slot.copied_up is not None:
                yield EventRequest(slot.copied_up)
            down = self._view(slot.down, send, window)
            up = self._view(slot.up, recv, window)
            yield from move(down, up, window)
            if recv is not None:
                self._copy(recv.parts(window), up, is_up=True)
            slot.copied_up = self._stream.record()
        for slot in self._slots:  # the next transfer writes to it
            if slot.copied_up is not None:
                yield EventRequest(slot.copied_up)

    def _copy_down(self, slot: _Slot, send: Blocks | None, window: Window) -> None:
        if send is not None:
            self._copy(send.parts(window), self._view(slot.down, send, window), is_up=False)
        slot.copied_down = self._stream.record()

    @staticmethod
    def _view(memory: Array, blocks: Blocks | None, window: Window) -> Array:
        if blocks is None:
            return memory[:0]
        array = blocks.array
        nbytes = sum(window.lengths(blocks.counts)) * array.itemsize
        return memory[:nbytes].view(array.dtype)

    @staticmethod
    def _copy(parts: list[Part], memory: Array, *, is_up: bool) -> None:
        """Queue copies between parts on the GPU and pinned memory, one after the other."""
        import cupy

        kind = (
            cupy.cuda.runtime.memcpyHostToDevice
            if is_up
            else (cupy.cuda.runtime.memcpyDeviceToHost)
        )
        stream, at = cupy.cuda.get_current_stream().ptr, memory.ctypes.data
        for there, nbytes in parts:
            to, source = (there, at) if is_up else (at, there)
            if nbytes:
                cupy.cuda.runtime.memcpyAsync(to, source, nbytes, kind, stream)
            at += nbytes
