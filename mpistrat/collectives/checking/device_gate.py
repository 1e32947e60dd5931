"""The gate of calls whose arrays are on GPUs: the same headers, another carrier of the data.

What is called is compared through the host's control before any data moves, so ranks of which one
brings an array on a GPU and another one of the host get `MismatchError`. The data then stays on
the GPUs as far as the carrier can do that (backends/gpu/choice.py).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

import numpy as np

from mpistrat import config
from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.backends.base import Request, Steps
from mpistrat.collectives.backends.gpu.backend import GpuBackend
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate, Transfer
from mpistrat.collectives.checking.reduction_check import ReductionCheck
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["DeviceGate", "GateOfCall", "gate_for"]

_DEVICE_SHIFT = 56  # the extra word of a header: the device above, the caller's number below


class DeviceGate:
    """What an operation needs of a `Gate`, for a call with arrays on one GPU of this rank.

    Attributes
    ----------
    backend
        What moves and reduces arrays on GPUs.
    host_backend
        What moves arrays of the host.
    inline_bytes, carries_headers
        As of `Gate`: the data never travels with the headers.
    extras
        The numbers that the ranks brought, shape (size,), once the gate was crossed.
    """

    inline_bytes = -1
    carries_headers = False

    def __init__(self, host: Gate, backend: GpuBackend, device: int) -> None:
        self._host, self._device = host, device
        self.backend, self.host_backend = backend, host.backend
        self.rank, self.size = host.rank, host.size
        self.reductions = ReductionCheck(backend)
        self.extras: Array = np.zeros(host.size, np.int64)

    def run(self, steps: Steps) -> Steps:
        """Return `steps`, carried out with the GPU and the stream of now as the current ones."""
        return on_device.run_on(self._device, self._known(steps))

    def _known(self, steps: Steps) -> Steps:
        try:
            return (yield from steps)
        except BackendUnavailableError as error:  # all ranks have found the same
            raise self._host.call_log.mark_known(error) from None

    def cross(
        self,
        signature: Signature,
        extra: int = 0,
        payload: Array | None = None,
        nbytes: int | None = None,
    ) -> Steps:
        """See `Gate.cross`; learns besides which GPU each rank has brought arrays of."""
        word = (self._device << _DEVICE_SHIFT) + extra
        yield from self._host.cross(signature._replace(memory="GPU"), word, nbytes=nbytes)
        # A number below 0 borrows 1 from the device above it: adding half a device gives it back.
        half = 1 << (_DEVICE_SHIFT - 1)
        devices = (self._host.extras + half) >> _DEVICE_SHIFT
        self.extras = self._host.extras - (devices << _DEVICE_SHIFT)
        self.backend.devices = tuple(devices.tolist())

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
        yield from self.cross(signature, extra)
        return None if is_empty else (yield from transfer())

    def may_guess(self, nbytes: int) -> bool:
        """Return False: see `Gate.may_guess`."""
        return False

    def carry_rows(
        self, signature: Signature, length: int, transfer: Transfer | None, nbytes: int
    ) -> Generator[Request, None, bool]:
        """See `Gate.carry_rows`; there is no guess."""
        yield from self.cross(signature, length, nbytes=nbytes)
        return False


GateOfCall: TypeAlias = Gate | DeviceGate
"""The gate of a call: the communicator's own, or that of the GPU which has the arrays."""


def gate_for(gate: Gate, array: Any) -> GateOfCall:
    """Return the gate for a call with arrays like `array`, as `as_operand` returns them."""
    if isinstance(array, np.ndarray):
        return gate
    config.gpu_carrier()  # a wrong one is refused before the first message
    if gate.device_backend is None:
        gate.device_backend = GpuBackend(gate.backend)
        gate.health.on_break = gate.device_backend.abort
    return DeviceGate(gate, gate.device_backend, on_device.index_of(array))
