"""The gate of calls whose arrays are on GPUs: the same headers, another carrier of the data.

What is called is compared through the host's control before any data moves, so ranks of which one
brings an array on a GPU and another one of the host get `MismatchError`. The data then stays on
the GPUs as far as the carrier can do that (backends/gpu/choice.py).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpistrat import config
from mpistrat.collectives.arrays import gpu_devices, gpu_streams, on_device
from mpistrat.collectives.backends.base import Request, Steps
from mpistrat.collectives.backends.gpu.backend import GpuBackend
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate, Transfer
from mpistrat.collectives.checking.reduction_check import ReductionCheck
from mpistrat.collectives.health.call_record import on_gpu
from mpistrat.errors import BackendUnavailableError, CommunicationError
from mpistrat.types import Array

__all__ = ["DeviceGate", "GateOfCall", "gate_for"]

# The extra word of a header: above the device and whether memory lacks, below the caller's number.
_PLACE_SHIFT = 55


class DeviceGate:
    """What an operation needs of a `Gate`, for a call with arrays on one GPU of this rank.

    Attributes
    ----------
    device
        Index of the GPU.
    backend
        What moves and reduces arrays on GPUs.
    host_backend
        What moves arrays of the host.
    inline_bytes, carries_headers
        As of `Gate`: the data never travels with the headers.
    call_log
        As of `Gate`.
    extras
        The numbers that the ranks brought, shape (size,), once the gate was crossed.
    """

    inline_bytes = -1
    carries_headers = False

    def __init__(self, host: Gate, backend: GpuBackend, device: int) -> None:
        self._host, self.device = host, device
        self.backend, self.host_backend = backend, host.backend
        self.rank, self.size = host.rank, host.size
        self.call_log = host.call_log
        self.reductions: ReductionCheck = host.device_reductions
        self.extras: Array
        self._is_across = False
        self._announced: int | None = None
        self._common: int | None = None

    @classmethod
    def of(cls, gate: Gate, device: int) -> DeviceGate:
        """Return the gate for a call with arrays on a GPU of this rank. **Local.**"""
        if gate.device_backend is None:
            gate.device_backend = GpuBackend(gate.backend, gate.call_log.note_carrier)
            gate.device_reductions = ReductionCheck(gate.device_backend)
            gate.health.on_break = gate.device_backend.abort
        return cls(gate, gate.device_backend, device)

    def adopt(self, devices: tuple[int, ...]) -> None:
        """Take over a call whose ranks have met at the host's gate, each with a GPU."""
        self.backend.devices = devices
        self._is_across = True

    def note_across(self) -> None:
        """Know that the ranks meet in this call at the host's gate: nobody can refuse it now."""
        self._is_across = True

    def run(self, steps: Steps) -> Steps:
        """Return `steps`, carried out with the GPU and the stream of now as the current ones."""
        return gpu_streams.run_on(self.device, self._known(steps))

    def _known(self, steps: Steps) -> Steps:
        try:
            return (yield from steps)
        except BackendUnavailableError as error:  # all ranks have found the same
            raise self._host.call_log.mark_known(error) from None
        except Exception as error:
            problem = gpu_devices.memory_problem(error)
            if problem is None:
                raise
            if self._is_across:  # the peers may be in the transfer: they hear of it by a notice
                raise CommunicationError(problem) from error
        yield from self._host.lack_memory(problem)

    def cross(
        self,
        signature: Signature,
        extra: int = 0,
        payload: Array | None = None,
        nbytes: int | None = None,
        lacks_memory: bool = False,
    ) -> Steps:
        """See `Gate.cross`; learns besides which GPU each rank has brought arrays of.

        With `lacks_memory` this rank cannot go on with the call as it is; returns whether any
        rank cannot.
        """
        word = ((2 * self.device + lacks_memory) << _PLACE_SHIFT) + extra
        yield from self._host.cross(on_gpu(signature, self.device), word, nbytes=nbytes)
        self._is_across = True
        shown = _shown(self._host.extras.tobytes())
        self.extras, self._common, self.backend.devices = shown[:3]
        return shown.lacks_memory

    def new_like(self, array: Array, count: int) -> Steps:
        """Return a new flat array like `array`, whose length the other ranks have told.

        Raises
        ------
        BackendUnavailableError
            On all ranks: some have not enough memory.
        """
        return self.backend.new(count, array.dtype)

    def carry(
        self,
        signature: Signature,
        transfer: Transfer,
        *,
        extra: int = 0,
        is_empty: bool = False,
        is_all: bool = True,
    ) -> Steps:
        """See `Gate.carry`."""
        devices = self.backend.devices
        yield from self.cross(signature, extra or self._announced or 0)
        if is_empty:
            return None
        # What was told is of the carrier of the call before. Ranks with other GPUs now have told
        # that none of its memory is used, which is no news of that of another carrier.
        if self._announced is not None:
            self.backend.set_agreed_places(
                self._common if devices == self.backend.devices else None
            )
        return (yield from transfer())

    def announce(self, send: Array, recv: Array) -> None:
        """Tell the other ranks, in the header of this all-reduce, where its arrays are."""
        self._announced = self.backend.encode_places(send, recv)

    def may_guess(self, nbytes: int) -> bool:
        """Return False: see `Gate.may_guess`."""
        return False

    def carry_rows(
        self, signature: Signature, length: int, transfer: Transfer | None, nbytes: int
    ) -> Generator[Request, None, bool]:
        """See `Gate.carry_rows`; there is no guess."""
        yield from self.cross(signature, length, nbytes=nbytes)
        return False


class _Shown(NamedTuple):
    """What the extra words of all ranks say."""

    extras: Array
    common: int | None  # the extra that all ranks show
    devices: tuple[int, ...]
    lacks_memory: bool


@lru_cache(maxsize=256)
def _shown(content: bytes) -> _Shown:
    words = np.frombuffer(content, np.int64)
    # A number below 0 borrows 1 from the place above it: adding half a place gives it back.
    places = (words + (1 << (_PLACE_SHIFT - 1))) >> _PLACE_SHIFT
    extras = words - (places << _PLACE_SHIFT)
    extras.flags.writeable = False  # it is kept
    common = int(extras[0]) if (extras == extras[0]).all() else None
    return _Shown(extras, common, tuple((places >> 1).tolist()), bool((places & 1).any()))


GateOfCall: TypeAlias = Gate | DeviceGate
"""The gate of a call: the communicator's own, or that of the GPU which has the arrays."""


def gate_for(gate: Gate, array: Any) -> GateOfCall:
    """Return the gate for a call with arrays like `array`, as `as_operand` returns them."""
    if isinstance(array, np.ndarray):
        return gate
    config.gpu_carrier(), config.gpu_one_shot()  # a wrong one is refused before the first message
    gpu_streams.refuse_capture()
    return DeviceGate.of(gate, on_device.index_of(array))
