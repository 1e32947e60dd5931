"""Convert between float32 and half types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mpistrat.bench.gpu.comparison import OURS, Comparison, Planned, Plans, Side, on_host, pattern
from mpistrat.bench.gpu.families.torch_views import tensors, torch_sides
from mpistrat.collectives.backends.gpu.kernels import movement

__all__ = ["planned"]

_PAIRS = (
    ("float32", "float16"),
    ("float16", "float32"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
)


def planned(sizes: Sequence[int]) -> Plans:
    """Yield a row for each pair of dtypes and size; the size is that of the float32 array."""
    for source, result in _PAIRS:
        for nbytes in sizes:
            what, make = f"{source} to {result}", partial(_make, source, result, nbytes)
            yield Planned("cast", what, nbytes, 5 * nbytes, make)


def _make(source: str, result: str, nbytes: int) -> Comparison:
    import cupy

    types = _dtype(source), _dtype(result)
    size = max(1, nbytes // 4)
    host = pattern(size).astype(types[0])
    want = host.astype(types[1])
    given, out = cupy.asarray(host), cupy.empty(size, types[1])
    sides = [
        Side(OURS, "mpistrat", lambda: movement.cast([given], [out])),
        Side("cupy", "cupy", lambda: given.astype(types[1])),
    ]
    # CuPy hands no bfloat16 over.
    if "bfloat16" not in (source, result):
        sides += torch_sides(lambda torch: partial(tensors([given])[0].to, getattr(torch, result)))

    def is_right(answer: Any) -> bool:
        return np.array_equal(on_host(out if answer is None else answer), want)

    row = ("cast", f"{source} to {result}", result, nbytes, given.nbytes + out.nbytes)
    return Comparison(*row, sides, partial(out.fill, 0), is_right)


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
