"""Make memory that later calls use without copies."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.cluster.devices.names import canonical
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.all_or_none import reasons, said
from mpistrat.collectives.checking.device_gate import DeviceGate
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.health.call_record import on_gpu
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, UsageError

__all__ = ["empty"]

_MOST_BYTES = 1 << 62


def empty(gate: Gate, shape: Any, dtype: Any, is_shared: bool, device: str | None) -> Steps:
    """See `Communicator.empty`."""
    try:
        lengths = _lengths(shape)
        kind = as_array(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"empty: shape={shape!r}, dtype={dtype!r}: {error}") from error
    if any(n < 0 for n in lengths):
        raise UsageError(f"empty: shape={shape!r}; expected lengths of at least 0")
    if math.prod(lengths) * kind.itemsize >= _MOST_BYTES:
        raise UsageError(f"empty: shape={shape!r}, dtype={kind}: more than any memory holds")
    name = "empty_shared" if is_shared else "empty"
    signature = Signature(name, dtype=kind, shape=lengths)
    index = None if device is None else gpu_devices.gpu_index(canonical(device, gate.rank))
    if index is None:
        return _steps(gate, signature, bool(is_shared))
    config.gpu_carrier()  # a wrong one is refused before the first message
    return _on_gpu(gate, on_gpu(signature, index), bool(is_shared), index)


def _lengths(shape: Any) -> tuple[int, ...]:
    lengths = shape if np.iterable(shape) and not isinstance(shape, (str, bytes)) else (shape,)
    return tuple(operator.index(n) for n in lengths)


def _steps(gate: Gate, signature: Signature, is_shared: bool) -> Steps:
    yield from gate.cross(signature)
    return (yield from _allocated(gate, signature, is_shared))


def _on_gpu(gate: Gate, signature: Signature, is_shared: bool, index: int) -> Steps:
    yield from gate.cross(signature, extra=index)
    devices = tuple(gate.extras.tolist())
    found = yield from reasons(gate.backend, gpu_devices.why_not(index))
    if found:
        error = BackendUnavailableError(f"empty: {said(found)}")
        raise gate.call_log.mark_known(error)
    own = DeviceGate.of(gate, index)
    own.adopt(devices)
    return (yield from own.run(_allocated(own, signature, is_shared)))


def _allocated(gate: Gate | DeviceGate, signature: Signature, is_shared: bool) -> Steps:
    dtype, shape = signature.dtype, signature.shape
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        memory = yield from gate.backend.allocate(nbytes, is_shared)
    except BackendUnavailableError as error:
        raise gate.call_log.mark_known(error) from None  # all ranks have the same one
    return memory.view(dtype).reshape(shape)
