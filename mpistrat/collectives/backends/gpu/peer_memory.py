"""Carry arrays between GPUs of one node through memory that all ranks have mapped.

Every rank copies a window of what it sends to its slab; once all have, each reads from the slabs
what it needs. Ranks meet on the host, after the copies of all are done: no kernel ever waits for
another process, since the kernels of ranks that share a GPU may run one after the other.

Windows go to one of two slots, then to the other. A rank comes to a meeting when its reads of the
window before are done, too, so the slot of the window before that can be filled again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.kernels.reductions import slice_reduce
from mpistrat.collectives.backends.gpu.slabs import Slabs
from mpistrat.collectives.backends.gpu.streams import TransferStream
from mpistrat.collectives.backends.gpu.windows import Blocks, Window, windows
from mpistrat.tables.even_cut import piece_bounds

__all__ = ["PeerMemory"]

_MOST_WHOLE = 3  # ranks; more of them reduce a slice each, which moves fewer bytes

Read: TypeAlias = Callable[[Window, int], Steps | None]
"""Queues the reads of a window from the slots that begin at a byte of each slab."""


class PeerMemory:
    """The carrier by mapped memory; see `Carrier`.

    Parameters
    ----------
    host
        The backend by which ranks meet.
    slabs
        Memory of all ranks, of four slots: two for what is sent, two for slices of results.
    stream
        The transfer stream of this rank's GPU.
    """

    name = "peer_memory"
    widens_halves = False

    def __init__(self, host: Backend, slabs: Slabs, stream: TransferStream) -> None:
        self._host, self._slabs, self._stream = host, slabs, stream
        self._slot_bytes = slabs.nbytes // 4 // 256 * 256
        self._next = 0
        self._word = np.zeros(1, np.int64)

    def open(self) -> str | None:
        """See `Carrier.open`."""
        return self._slabs.open()

    def meet(self) -> Steps:
        """See `Carrier.meet`."""
        return self._slabs.meet()

    def leave(self) -> Steps:
        """See `Carrier.leave`."""
        yield self._stream.done()
        self._slabs.leave()

    def abort(self) -> None:
        """See `Carrier.abort`: they wait on the host."""

    def close(self) -> None:
        """See `Carrier.close`."""
        self._slabs.close()

    # ---------------------------------------------------------------------------- reductions

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""
        if self._host.size > _MOST_WHOLE:
            return self._by_slices(send, recv, op)
        return self._reduce(Blocks.one(send), recv, op, send.size)

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Carrier.reduce`."""
        return self._reduce(Blocks.one(send), recv, op, send.size)

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Carrier.reduce_scatter`."""
        return self._reduce(Blocks(send, counts), recv, op, max(counts))

    def _reduce(self, send: Blocks, recv: Any | None, op: str, longest: int) -> Steps:
        """Reduce this rank's block of each window straight from all slots."""
        block = self._host.rank if len(send.counts) > 1 else 0

        def read(window: Window, slot: int) -> None:
            if recv is None:
                return
            lengths = window.lengths(send.counts)
            start = slot + sum(lengths[:block]) * send.array.itemsize
            mine = recv[window.start : window.start + lengths[block]]
            sources = [pointer + start for pointer in self._slabs.pointers]
            slice_reduce(op, send.array.dtype, sources, [mine.data.ptr], 0, mine.size)

        return self._carry(send, longest, len(send.counts), read)

    def _by_slices(self, send: Any, recv: Any, op: str) -> Steps:
        """Reduce a slice of each window, and write it to a slot of every rank."""

        def read(window: Window, slot: int) -> Steps:
            [length] = window.lengths([send.size])
            begin, end = piece_bounds(length, self._host.size, self._host.rank)
            results = slot + 2 * self._slot_bytes
            sources = [pointer + slot for pointer in self._slabs.pointers]
            targets = [pointer + results for pointer in self._slabs.pointers]
            slice_reduce(op, send.dtype, sources, targets, begin, end)
            yield self._stream.done()
            yield from self._meet()
            mine = self._slabs.view(self._host.rank, results, length, send.dtype)
            _copy([mine], [recv[window.start : window.start + length]])

        return self._carry(Blocks.one(send), send.size, 1, read)

    # ------------------------------------------------------------------------------ movement

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Carrier.bcast`."""
        is_root, blocks = self._host.rank == root, Blocks.one(buffer)

        def read(window: Window, slot: int) -> None:
            if not is_root:
                self._read(root, slot, blocks.pieces(window)[0])

        return self._carry(blocks if is_root else None, buffer.size, 1, read, buffer.itemsize)

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Carrier.allgather`."""
        return self.gather(send, recv, counts, root=0)

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.gather`."""

        def read(window: Window, slot: int) -> None:
            pieces = [] if recv is None else Blocks(recv, counts).pieces(window)
            for rank, piece in enumerate(pieces):
                self._read(rank, slot, piece)

        return self._carry(Blocks.one(send), max(counts), 1, read)

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.scatter`."""

        def read(window: Window, slot: int) -> None:
            before = sum(window.lengths(counts)[: self._host.rank])
            piece = Blocks.one(recv).pieces(window)[0]
            self._read(root, slot + before * recv.itemsize, piece)

        source = None if send is None else Blocks(send, counts)
        return self._carry(source, max(counts), len(counts), read, recv.itemsize)

    def alltoall(
        self,
        send: Any,
        recv: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        longest: int,
    ) -> Steps:
        """See `Carrier.alltoall`."""
        size, rank = self._host.size, self._host.rank
        everyone = np.empty((size, size), np.int64)  # row r: how rank r cuts what it sends
        row = np.array(send_counts, np.int64)
        yield from self._host.allgather(row, everyone.reshape(-1), [size] * size)

        def read(window: Window, slot: int) -> None:
            pieces = Blocks(recv, recv_counts).pieces(window)
            for peer, piece in enumerate(pieces):
                before = sum(window.lengths(everyone[peer, :rank].tolist()))
                self._read(peer, slot + before * recv.itemsize, piece)

        yield from self._carry(Blocks(send, send_counts), longest, size, read)

    # ------------------------------------------------------------------------------- windows

    def _carry(
        self, send: Blocks | None, longest: int, blocks: int, read: Read, itemsize: int = 0
    ) -> Steps:
        """Copy each window to this rank's slot, meet, and `read` what this rank needs."""
        size = send.array.itemsize if send is not None else itemsize
        for window in windows(longest, size, blocks, self._slot_bytes):
            slot = self._next * self._slot_bytes
            self._next = 1 - self._next
            if send is not None:
                pieces = send.pieces(window)
                count = sum(piece.size for piece in pieces)
                mine = self._slabs.view(self._host.rank, slot, count, send.array.dtype)
                _copy(pieces, Blocks(mine, [piece.size for piece in pieces]).pieces(_ALL))
            yield self._stream.done()
            yield from self._meet()
            more = read(window, slot)
            if more is not None:
                yield from more

    def _meet(self) -> Steps:
        """Wait until all ranks are here. **Collective.**"""
        return self._host.allreduce(self._word, self._word, "max")

    def _read(self, rank: int, start: int, piece: Any) -> None:
        _copy([self._slabs.view(rank, start, piece.size, piece.dtype)], [piece])


_ALL = Window(0, 1 << 62)


def _copy(sources: Sequence[Any], targets: Sequence[Any]) -> None:
    """Queue copies between arrays of equal length on the current stream."""
    import cupy

    runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream().ptr
    for source, target in zip(sources, targets, strict=True):
        if source.nbytes:
            runtime.memcpyAsync(
                target.data.ptr,
                source.data.ptr,
                source.nbytes,
                runtime.memcpyDeviceToDevice,
                stream,
            )
