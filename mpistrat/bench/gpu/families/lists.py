"""Pack and unpack ResNet-50's gradients, and join ragged parts, by one launch each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from mpistrat.bench.gpu.comparison import OURS, Comparison, Planned, Plans, Side, on_host, pattern
from mpistrat.bench.gpu.families.torch_views import tensors, torch_sides
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.collectives.backends.gpu.kernels import movement
from mpistrat.types import Array

__all__ = ["planned", "separate"]

_COLUMNS = 64
_WEIGHTS = (1, 5, 2, 7, 1)  # lengths of the parts that are joined, over their sum


def planned(sizes: Sequence[int], variables: int) -> Plans:
    """Yield rows: the list packed and unpacked, and joins of each size along both axes."""
    nbytes = 4 * sum(math.prod(shape) for shape in gradient_shapes()[:variables])
    for family, make in (("pack", _pack), ("unpack", _unpack)):
        what = f"{len(gradient_shapes()[:variables])} arrays"
        yield Planned(family, what, nbytes, 5 * nbytes, partial(make, variables))
    for axis in (0, 1):
        for size in sizes:
            make_one = partial(_concatenate, size, axis)
            yield Planned("concatenate", f"axis {axis}", size, 5 * size, make_one)


def separate(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return arrays on the GPU, each with memory of its own, with the content of `flat`."""
    import cupy

    cuts = zip(_bounds(shapes), shapes, strict=True)
    return [cupy.array(flat[begin:end].reshape(shape)) for (begin, end), shape in cuts]


def _bounds(shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    ends = list(accumulate(math.prod(shape) for shape in shapes))
    return list(zip([0, *ends], ends, strict=False))


def _pack(variables: int) -> Comparison:
    import cupy

    shapes = gradient_shapes()[:variables]
    bounds = _bounds(shapes)
    want = pattern(bounds[-1][1])
    arrays, flat = separate(want, shapes), cupy.empty_like(cupy.asarray(want))

    def loop() -> None:
        for one, (begin, end) in zip(arrays, bounds, strict=True):
            flat[begin:end] = one.ravel()

    def joined() -> None:
        cupy.concatenate([one.ravel() for one in arrays], out=flat)

    sides = [
        Side(OURS, "mpistrat", lambda: movement.pack(arrays, flat.data.ptr)),
        Side("cupy loop", "cupy", loop, launches=len(arrays)),
        Side("cupy concatenate", "cupy", joined, launches=len(arrays)),
    ]

    def make(torch: Any) -> Callable[[], object]:
        theirs, [into] = tensors([one.ravel() for one in arrays]), tensors([flat])
        return partial(torch.cat, theirs, out=into)

    sides += torch_sides(make)

    def is_right(_: Any) -> bool:
        return np.array_equal(flat.get(), want)

    what, moved = f"{len(arrays)} arrays", 2 * flat.nbytes
    reset = partial(flat.fill, np.nan)
    return Comparison("pack", what, "float32", flat.nbytes, moved, sides, reset, is_right)


def _unpack(variables: int) -> Comparison:
    import cupy

    shapes = gradient_shapes()[:variables]
    bounds = _bounds(shapes)
    want = pattern(bounds[-1][1])
    flat, arrays = cupy.asarray(want), separate(np.zeros_like(want), shapes)

    def loop() -> None:
        for one, (begin, end) in zip(arrays, bounds, strict=True):
            one[...] = flat[begin:end].reshape(one.shape)

    sides = [
        Side(OURS, "mpistrat", lambda: movement.unpack(flat.data.ptr, arrays)),
        Side("cupy loop", "cupy", loop, launches=len(arrays)),
    ]

    def make(torch: Any) -> Callable[[], object]:
        pieces = [flat[b:e].reshape(s) for (b, e), s in zip(bounds, shapes, strict=True)]
        return partial(torch._foreach_copy_, tensors(arrays), tensors(pieces))

    sides += torch_sides(make, launches=len(arrays))

    def reset() -> None:
        for one in arrays:
            one.fill(np.nan)

    def is_right(_: Any) -> bool:
        return np.array_equal(np.concatenate([one.get().ravel() for one in arrays]), want)

    what, moved = f"{len(arrays)} arrays", 2 * flat.nbytes
    return Comparison("unpack", what, "float32", flat.nbytes, moved, sides, reset, is_right)


def _concatenate(nbytes: int, axis: int) -> Comparison:
    import cupy

    length = max(len(_WEIGHTS), nbytes // 4 // _COLUMNS)
    shape = (length, _COLUMNS) if axis == 0 else (_COLUMNS, length)
    want = pattern(length * _COLUMNS).reshape(shape)
    cuts = [length * end // sum(_WEIGHTS) for end in accumulate(_WEIGHTS)][:-1]
    parts = [cupy.array(part) for part in np.split(want, cuts, axis)]
    out = cupy.empty(shape, np.float32)
    sides = [
        Side(OURS, "mpistrat", lambda: movement.concatenate(parts, axis, out)),
        Side("cupy", "cupy", lambda: cupy.concatenate(parts, axis), launches=len(parts)),
    ]
    sides += torch_sides(lambda torch: partial(torch.cat, tensors(parts), axis))

    def is_right(answer: Any) -> bool:
        return np.array_equal(on_host(out if answer is None else answer), want)

    row = ("concatenate", f"axis {axis}", "float32", nbytes, 2 * out.nbytes)
    return Comparison(*row, sides, partial(out.fill, np.nan), is_right)
