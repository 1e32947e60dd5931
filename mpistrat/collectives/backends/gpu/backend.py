"""The backend of arrays on GPUs: opens a carrier for the GPUs of a call, and hands it transfers.

A communicator has one beside the backend of the host, which it uses to agree. Different calls of a
communicator may bring arrays of different GPUs; each set of GPUs has its own carrier.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpistrat import built_in_sizes
from mpistrat.collectives.arrays.gpu_devices import on_gpu
from mpistrat.collectives.arrays.gpu_streams import run_on
from mpistrat.collectives.backends.base import Backend, Capabilities, Steps
from mpistrat.collectives.backends.gpu.all_or_none import new_memory
from mpistrat.collectives.backends.gpu.carriers.carrier import Carrier
from mpistrat.collectives.backends.gpu.carriers.nccl import Nccl
from mpistrat.collectives.backends.gpu.carriers.peer_memory import PeerMemory
from mpistrat.collectives.backends.gpu.memory.mapped_slots import MappedSlots, NoSlots
from mpistrat.collectives.backends.gpu.memory.pinned_regions import pinned_region
from mpistrat.collectives.backends.gpu.memory.registered import PLAIN
from mpistrat.collectives.backends.gpu.opening import Opened, Opening
from mpistrat.collectives.backends.gpu.short_arrays.allreduce import ShortArrays
from mpistrat.collectives.backends.gpu.streams import TransferStreams
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.system.waiting import wait_until
from mpistrat.tables.reduction_ops import DTYPES, OPS

__all__ = ["GpuBackend"]

_LOG = get_logger(__name__)
_RELEASE_S, _NAP_S = 2.0, 1e-3
_still_used: list[Carrier] = []  # to the end of the process


class GpuBackend:
    """The transfers of a `Backend`, for arrays of CuPy on the GPU that is the current one.

    It has no headers and no fast calls: those are the host's.

    Parameters
    ----------
    host
        The backend by which the ranks agree.
    note
        Told the name of the carrier of each transfer that begins.

    Attributes
    ----------
    devices
        Index of each rank's GPU in the call that is under way; the caller sets it.
    short
        What all-reduces short arrays, in calls that begin after those of all ranks have been
        carried once; None if they go the way of the others, as with NCCL.
    """

    name = "gpu"

    def __init__(self, host: Backend, note: Callable[[str], None]) -> None:
        self._host, self._note = host, note
        self._process = os.getpid()
        self.rank, self.size = host.rank, host.size
        self.devices: tuple[int, ...] = (0,) * host.size
        self._carriers: dict[tuple[int, ...], Carrier] = {}
        self._opening: Opening | None = None
        self._streams = TransferStreams()
        self.short: ShortArrays | None = None

    def capabilities(self) -> Capabilities:
        """See `Backend.capabilities`."""
        return Capabilities(
            devices=("GPU",),
            dtypes=DTYPES | {"float16", "bfloat16"},
            ops=frozenset(OPS),
            in_place=True,
            asynchronous=False,
            exact=True,
        )

    @property
    def widens_halves(self) -> bool:
        """Whether half types travel as float32 between the GPUs of the last call.

        The same on all ranks. Who packs arrays converts them then in the same launch.
        """
        carrier = self._carriers.get(self.devices)
        return carrier is not None and carrier.widens_halves

    @property
    def slots(self) -> MappedSlots | NoSlots:
        """Memory that lists are packed into, between the GPUs of the last call.

        The same on all ranks.
        """
        carrier = self._carriers.get(self.devices)
        return carrier.slots if isinstance(carrier, PeerMemory) else NoSlots()

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """See `Backend.allocate`; GPUs have no memory that ranks share as one array."""
        if is_shared and self.size > 1:
            raise BackendUnavailableError(
                "empty: ranks share no array on GPUs; leave out shared=True, or device="
            )
        carrier = yield from self._carrier()
        return (yield from carrier.allocate(nbytes))

    def new(self, count: int, dtype: Any) -> Steps:
        """Return a new flat array on this rank's GPU; all ranks get one, or none."""
        return new_memory(self._host, count, dtype)

    def encode_places(self, send: Any, recv: Any) -> int:
        """Return the code of where arrays are, for the header of an all-reduce. **Local.**"""
        carrier = self._carriers.get(self.devices)
        return carrier.places.encode(send, recv) if isinstance(carrier, PeerMemory) else PLAIN

    def set_agreed_places(self, code: int | None) -> None:
        """Take note of the code that all ranks have told; None if they have told others."""
        carrier = self._carriers.get(self.devices)
        if isinstance(carrier, PeerMemory):
            carrier.places.set_agreed(code)

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Backend.allreduce`."""
        return self._carry(lambda carrier: carrier.allreduce(send, recv, op))

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Backend.reduce`."""
        return self._carry(lambda carrier: carrier.reduce(send, recv, op, root))

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Backend.bcast`."""
        return self._carry(lambda carrier: carrier.bcast(buffer, root))

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Backend.allgather`."""
        return self._carry(lambda carrier: carrier.allgather(send, recv, counts))

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Backend.gather`."""
        return self._carry(lambda carrier: carrier.gather(send, recv, counts, root))

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Backend.scatter`."""
        return self._carry(lambda carrier: carrier.scatter(send, recv, counts, root))

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Backend.reduce_scatter`."""
        return self._carry(lambda carrier: carrier.reduce_scatter(send, recv, counts, op))

    def alltoall(
        self,
        send: Any,
        recv: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """See `Backend.alltoall`; here the counts are on the host, the arrays on the GPU."""
        longest = most
        if longest is None:
            mine = np.array([max(send_counts)], np.int64)
            yield from self._host.allreduce(mine, mine, "max")
            longest = int(mine[0])
        yield from self._carry(
            lambda carrier: carrier.alltoall(send, recv, send_counts, recv_counts, longest)
        )

    @property
    def has_one_shot(self) -> bool:
        """Whether one kernel all-reduces short arrays in place of NCCL, in all that is open."""
        carriers = self._carriers.values()
        return all(isinstance(one, Nccl) and one.short is not None for one in carriers)

    def tune(self, tuning: GpuTuning) -> None:
        """Use other sizes in what is open, at most those it was opened with. **Local.**

        All ranks have to give the same ones.
        """
        for carrier in self._carriers.values():
            carrier.tune(tuning.filled(self.size))

    def leave(self) -> Steps:
        """Let go of what belongs to the other ranks: this one is about to close. **Local.**"""
        for devices, carrier in self._carriers.items():
            yield from run_on(devices[self.rank], carrier.leave())

    def abort(self) -> None:
        """Give up the transfers under way: the communicator is broken. **Local.**"""
        for devices, carrier in self._carriers.items():
            _abort(carrier, devices[self.rank])
        if self._opening is not None and self._opening.under_way is not None:
            _abort(self._opening.under_way, self.devices[self.rank])

    def release(self) -> None:
        """Let go of what nobody else can use, once the communicator is broken. **Local.**

        That is memory of the other ranks, and pinned memory of the host that no transfer was
        given. What other ranks may still have mapped stays until this process ends: to free it
        before they close it is undefined.
        """
        if os.getpid() != self._process:  # a forked child, which has no GPU
            return
        while self._carriers:
            devices, carrier = self._carriers.popitem()
            _release(carrier, devices[self.rank])
        self.short = None

    def close(self) -> None:
        """Free all memory, once all ranks have left. **Local.**"""
        while self._carriers:
            devices, carrier = self._carriers.popitem()
            with on_gpu(devices[self.rank]):
                carrier.close()
        self.short = None
        self._streams.give_back()

    # ------------------------------------------------------------------------------ carriers

    def _carry(self, begin: Callable[[Carrier], Steps]) -> Steps:
        carrier = yield from self._carrier()
        stream = self._streams.of(self.devices[self.rank])
        return (yield from stream.run(begin(carrier)))

    def _carrier(self) -> Steps:
        """Return the carrier for the GPUs of this call. **Collective** the first time."""
        carrier = self._carriers.get(self.devices)
        if carrier is None:
            device = self.devices[self.rank]
            self._opening = Opening(self._host, device, self._streams.of(device))
            carrier = yield from self._opening.best()
            if not self._carriers and self._opening.may_shorten:
                most = built_in_sizes.GPU_SHORT_BYTES
                region = yield from pinned_region(self._host, 2 * most)
                self.short = ShortArrays(most, self._opening.are_apart, region)
            self._carriers[self.devices] = carrier
        self._note(carrier.name)
        return carrier


def _release(carrier: Carrier, device: int) -> None:
    try:
        with on_gpu(device):
            for request in carrier.leave():
                if not wait_until(request.Test, _RELEASE_S, _NAP_S):
                    _still_used.append(carrier)  # by work that has not ended
                    return
    except Exception as error:  # noqa: BLE001 - what broke it is told, not what follows
        text = f"the memory of {carrier.name!r} cannot be given back: {error}"
        warn_once(_LOG, f"release {carrier.name}", text)


def _abort(carrier: Opened, device: int) -> None:
    try:
        with on_gpu(device):
            carrier.abort()
    except Exception as error:  # noqa: BLE001 - what broke it is told, not what follows
        text = f"transfers by {carrier.name!r} cannot be given up: {error}"
        warn_once(_LOG, f"abort {carrier.name}", text)
