"""Carry arrays between GPUs of one node through memory that all ranks have mapped.

Every rank copies a window of what it sends to its slab; once all have, each reads from the slabs
what it needs. Ranks meet on the host, after the copies of all are done: no kernel ever waits for
another process, since the kernels of ranks that share a GPU may run one after the other.

Where ranks share a GPU, one of them reduces for all of them: the GPU turns from process to
process, which takes 0.15 to 0.3 ms each time without MPS.

Windows go to one of two slots, then to the other. A rank comes to a barrier when its reads of the
window before are done, too, so the slot of the window before that can be filled again after it.

What all ranks send from registered memory (registered_places.py) is read where it is, in one
window, and the ranks meet once more at its end: what is read belongs to the user again when the
call returns. So it is with lists that were packed into slots (mapped_slots.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.carriers.registered_places import RegisteredPlaces
from mpistrat.collectives.backends.gpu.carriers.transfer_barrier import TransferBarrier
from mpistrat.collectives.backends.gpu.carriers.windows import Blocks, Part, Window, windows
from mpistrat.collectives.backends.gpu.kernels.reductions import slice_reduce
from mpistrat.collectives.backends.gpu.memory.mapped_slots import MappedSlots
from mpistrat.collectives.backends.gpu.memory.registered import Regions
from mpistrat.collectives.backends.gpu.memory.slabs import Slabs
from mpistrat.collectives.backends.gpu.streams import TransferStream
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.tables.even_cut import piece_bounds

__all__ = ["PeerMemory"]

Read: TypeAlias = Callable[[Window, Sequence[int]], Steps | None]
"""Queues the reads of a window, of which each rank's part begins at an address."""


class PeerMemory:
    """The carrier by mapped memory; see `Carrier`.

    Parameters
    ----------
    host
        The backend by which ranks meet.
    slabs
        Memory of all ranks, for four slots.
    regions
        Registered memory of all ranks.
    stream
        The transfer stream of this rank's GPU.
    whole_bytes
        Up to so many bytes every rank reduces all of an array, above a slice; the same on all
        ranks.
    gpus
        Number of each rank's GPU, from 0 in the order of their first ranks.

    Attributes
    ----------
    slots
        What windows go through, and lists are packed into.
    places
        Where the ranks have registered memory.
    """

    name = "peer_memory"
    widens_halves = False

    def __init__(
        self,
        host: Backend,
        slabs: Slabs,
        regions: Regions,
        stream: TransferStream,
        whole_bytes: int,
        gpus: Sequence[int],
    ) -> None:
        self._is_first_on_gpu = gpus.index(gpus[host.rank]) == host.rank
        self._gpu, self._num_gpus = gpus[host.rank], max(gpus) + 1
        self._host, self._slabs, self._stream = host, slabs, stream
        self._regions = regions
        self.slots = MappedSlots(slabs, stream)
        self._window_bytes, self._whole_bytes = self.slots.nbytes, whole_bytes
        self._barrier = TransferBarrier(host, stream)
        self.places = RegisteredPlaces(host, regions, stream)

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
        self._regions.leave()

    def tune(self, tuning: GpuTuning) -> None:
        """See `Carrier.tune`."""
        self._window_bytes = min(tuning.mapped_bytes, self.slots.nbytes)
        self._whole_bytes = tuning.whole_bytes

    def abort(self) -> None:
        """See `Carrier.abort`: they wait on the host."""

    def close(self) -> None:
        """See `Carrier.close`."""
        self._slabs.close()
        self._regions.close()

    def allocate(self, nbytes: int) -> Steps:
        """See `Carrier.allocate`."""
        return self._regions.allocate(nbytes)

    # ---------------------------------------------------------------------------- reductions

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""
        code = self.places.take_agreed()
        lent = self.slots.lent(send, recv)
        if lent is not None:
            yield from self._barrier.wait()  # all have packed
            yield from self._reduce_slice(send, lent, lent, op)
            return
        places = yield from self.places.of_allreduce(code, send, recv)
        sends = None if places is None else self.places.addresses(places.sends)
        recvs = None if places is None else self.places.addresses(places.recvs)
        if sends is not None and recvs is not None:
            yield from self._reduce_slice(send, sends, recvs, op)
            return
        if send.nbytes > self._whole_bytes:
            yield from self._by_slices(send, recv, op)
            return
        # A rank that reads all of them writes to what others may still read, in place.
        is_in_place = places is not None and places.are_in_place
        blocks = Blocks.one(send)
        yield from self._reduce(blocks, recv, op, send.size, None if is_in_place else sends)

    def _reduce_slice(
        self, send: Any, sends: Sequence[int], recvs: Sequence[int], op: str
    ) -> Steps:
        """Reduce this GPU's slice from where all ranks have it to where all want it.

        In place, too: each element is read and written by one thread of one rank.
        """
        self._reduce_own_slice(op, send.dtype, send.size, sends, recvs)
        yield from self._barrier.wait()

    def _reduce_own_slice(
        self, op: str, dtype: Any, length: int, sends: Sequence[int], recvs: Sequence[int]
    ) -> None:
        if self._is_first_on_gpu:
            begin, end = piece_bounds(length, self._num_gpus, self._gpu)
            slice_reduce(op, dtype, sends, recvs, begin, end)

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Carrier.reduce`."""
        sends = yield from self.places.sends(send)
        yield from self._reduce(Blocks.one(send), recv, op, send.size, sends)

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Carrier.reduce_scatter`."""
        sends = yield from self.places.sends(send)
        yield from self._reduce(Blocks(send, counts), recv, op, max(counts), sends)

    def _reduce(
        self,
        send: Blocks,
        recv: Any | None,
        op: str,
        longest: int,
        sends: Sequence[int] | None,
    ) -> Steps:
        """Reduce this rank's block of each window straight from where all ranks have it."""
        block = self._host.rank if len(send.counts) > 1 else 0

        def read(window: Window, places: Sequence[int]) -> None:
            if recv is None:
                return
            lengths = window.lengths(send.counts)
            start = sum(lengths[:block]) * send.array.itemsize
            mine = recv.data.ptr + window.start * recv.itemsize
            sources = [place + start for place in places]
            slice_reduce(op, send.array.dtype, sources, [mine], 0, lengths[block])

        return self._carry(send, longest, len(send.counts), read, sends)

    def _by_slices(self, send: Any, recv: Any, op: str) -> Steps:
        """Reduce a slice of each window, and write it to a slot of every rank."""

        def read(window: Window, places: Sequence[int]) -> Steps:
            [length] = window.lengths([send.size])
            offset = places[self._host.rank] - self.slots.mine(0)
            results = self.slots.for_results(offset)
            everyone = self.slots.everyone(results)
            self._reduce_own_slice(op, send.dtype, length, places, everyone)
            yield from self._barrier.wait()
            [part] = Blocks.one(recv).parts(window)
            _read(self.slots.mine(results), part)

        return self._carry(Blocks.one(send), send.size, 1, read, None)

    # ------------------------------------------------------------------------------ movement

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Carrier.bcast`."""
        is_root, blocks = self._host.rank == root, Blocks.one(buffer)
        sends = yield from self.places.sends(buffer if is_root else None, root)

        def read(window: Window, places: Sequence[int]) -> None:
            if not is_root:
                _read(places[root], blocks.parts(window)[0])

        send = blocks if is_root else None
        yield from self._carry(send, buffer.size, 1, read, sends, buffer.itemsize)

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Carrier.allgather`."""
        return self.gather(send, recv, counts, root=0)

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.gather`."""
        sends = yield from self.places.sends(send)

        def read(window: Window, places: Sequence[int]) -> None:
            parts = [] if recv is None else Blocks(recv, counts).parts(window)
            for place, part in zip(places, parts, strict=False):  # none but on the root
                _read(place, part)

        yield from self._carry(Blocks.one(send), max(counts), 1, read, sends)

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.scatter`."""
        sends = yield from self.places.sends(send, root)

        def read(window: Window, places: Sequence[int]) -> None:
            before = sum(window.lengths(counts)[: self._host.rank])
            [part] = Blocks.one(recv).parts(window)
            _read(places[root] + before * recv.itemsize, part)

        source = None if send is None else Blocks(send, counts)
        yield from self._carry(source, max(counts), len(counts), read, sends, recv.itemsize)

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
        sends = yield from self.places.sends(send)

        def read(window: Window, places: Sequence[int]) -> None:
            parts = Blocks(recv, recv_counts).parts(window)
            for peer, part in enumerate(parts):
                before = sum(window.lengths(everyone[peer, :rank].tolist()))
                _read(places[peer] + before * recv.itemsize, part)

        yield from self._carry(Blocks(send, send_counts), longest, size, read, sends)

    # ------------------------------------------------------------------------------- windows

    def _carry(
        self,
        send: Blocks | None,
        longest: int,
        blocks: int,
        read: Read,
        sends: Sequence[int] | None,
        itemsize: int = 0,
    ) -> Steps:
        """Copy each window to this rank's slot, meet, and `read` what this rank needs.

        What is at the addresses `sends` is read there instead.
        """
        if sends is not None:
            yield from read(Window(0, longest), sends) or ()
            yield from self._barrier.wait()
            return
        size = send.array.itemsize if send is not None else itemsize
        for window in windows(longest, size, blocks, self._window_bytes):
            slot = self.slots.take()
            if send is not None:
                _write(send.parts(window), self.slots.mine(slot))
            yield from self._barrier.wait()
            yield from read(window, self.slots.everyone(slot)) or ()


def _read(source: int, target: Part) -> None:
    """Queue the copy of what is at an address."""
    _copy_bytes(source, target.address, target.nbytes)


def _write(sources: Sequence[Part], target: int) -> None:
    """Queue copies of parts to an address, one after the other."""
    for source in sources:
        _copy_bytes(source.address, target, source.nbytes)
        target += source.nbytes


def _copy_bytes(source: int, target: int, nbytes: int) -> None:
    import cupy

    runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream().ptr
    if nbytes:
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDeviceToDevice, stream)
