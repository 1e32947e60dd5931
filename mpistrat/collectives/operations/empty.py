"""Make memory that later calls use without copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, UsageError

__all__ = ["empty"]


def empty(gate: Gate, shape: Any, dtype: Any, is_shared: bool) -> Steps:
    """See `Communicator.empty`."""
    try:
        lengths = tuple(int(n) for n in (shape if np.iterable(shape) else (shape,)))
        kind = as_array(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"empty: shape={shape!r}, dtype={dtype!r}: {error}") from error
    if any(n < 0 for n in lengths):
        raise UsageError(f"empty: shape={shape!r}; expected lengths of at least 0")
    return _steps(gate, lengths, kind, bool(is_shared))


def _steps(gate: Gate, shape: tuple[int, ...], dtype: np.dtype[Any], is_shared: bool) -> Steps:
    name = "empty_shared" if is_shared else "empty"
    yield from gate.cross(Signature(name, dtype=dtype, shape=shape))
    try:
        memory = yield from gate.backend.allocate(math.prod(shape) * dtype.itemsize, is_shared)
    except BackendUnavailableError as error:
        raise gate.call_log.mark_known(error) from None  # all ranks have the same one
    return memory.view(dtype).reshape(shape)
