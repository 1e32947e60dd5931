"""Check move_pieces and cast: packing, unpacking, joining along any axis, conversions."""

from __future__ import annotations

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import CASTS
from helpers.gpu_kernels.library import Library, check, filled_on_host
from mpistrat.collectives.backends.gpu.kernels.movement import CAST_PIECE, PIECE, joined
from mpistrat.collectives.backends.gpu.kernels.source import instance_name, type_name
from mpistrat.collectives.backends.gpu.kernels.tables import NUM_INLINE, table_dtype
from mpistrat.types import Array

__all__ = ["check_casts", "check_joined", "check_packed"]

_CHUNK = 1024


def _move(library: Library, pieces: Array, blocks: int) -> None:
    table = np.zeros((), table_dtype(PIECE))
    sizes = pieces["row_bytes"] * pieces["rows"]
    with filled_on_host(table, pieces, sizes, _CHUNK):
        library.run(instance_name("move_pieces"), blocks, 64, table)


def check_packed(library: Library, *, are_all: bool) -> None:
    """Pack hundreds of arrays of any size and alignment, and unpack them."""
    generator = np.random.default_rng(3)
    for count, blocks, gap in (
        (161, 5, 0),
        (NUM_INLINE, 3, 1),
        (1, 2, 3),
        (40 * (1 + are_all), 7, 8),
    ):
        sizes = generator.integers(0, 6000, count)
        sizes[:3] = (1, 0, 5000)[:count]
        offsets = generator.integers(0, 16, count)
        arrays = [
            at_offset(generator.integers(0, 256, size, np.uint8), int(offset))
            for size, offset in zip(sizes, offsets, strict=True)
        ]
        flat = at_offset(np.full(int(sizes.sum()), 0xA5, np.uint8), gap)
        places = flat.ctypes.data + np.cumsum(sizes) - sizes
        pieces = np.zeros(count, PIECE)
        pieces["from"] = [one.ctypes.data for one in arrays]
        pieces["to"], pieces["row_bytes"], pieces["rows"] = places, sizes, 1
        _move(library, pieces, blocks)
        check(flat.tobytes() == b"".join(one.tobytes() for one in arrays), f"packed {count}")
        back = [at_offset(np.zeros_like(one), (gap + i) % 16) for i, one in enumerate(arrays)]
        pieces["from"], pieces["to"] = places, [one.ctypes.data for one in back]
        _move(library, pieces, blocks)
        check(all(map(np.array_equal, arrays, back)), f"unpacked {count}")


def check_joined(library: Library, *, are_all: bool) -> None:
    """Join arrays of ragged lengths along each axis."""
    generator = np.random.default_rng(4)
    shapes = [(7,), (5, 3), (4, 2, 6), (1, 8), (3, 64, 4)]
    for dtype in map(
        np.dtype, ("u1", "f2", "f4", "c8", "c16") if are_all else ("u1", "f4", "c16")
    ):
        for shape in shapes:
            for axis in range(len(shape)):
                lengths = [int(one) for one in generator.integers(0, 9, 4)]
                parts = [
                    random_values(generator, dtype, int(np.prod(_with(shape, axis, n))))
                    for n in lengths
                ]
                parts = [at_offset(one, dtype.itemsize % 16) for one in parts]
                whole = _with(shape, axis, sum(lengths))
                out = np.zeros(whole, dtype)
                addresses = [one.ctypes.data for one in parts]
                place = (out.ctypes.data, axis, whole, dtype.itemsize)
                _move(library, joined(addresses, lengths, *place), 3)
                shaped = [
                    one.reshape(_with(shape, axis, n))
                    for one, n in zip(parts, lengths, strict=True)
                ]
                want = np.concatenate(shaped, axis)
                check(out.tobytes() == want.tobytes(), f"{dtype} {shape} along {axis}: {lengths}")


def _with(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def check_casts(library: Library, *, are_all: bool) -> None:
    """Convert between all floating dtypes; from half types all of their numbers."""
    generator = np.random.default_rng(5)
    for to_name, from_name in CASTS:
        to, start = dtype_of(to_name), dtype_of(from_name)
        arrays = [random_values(generator, start, size) for size in (1, 0, 17, 1500)]
        if start.itemsize == 2 and (are_all or to_name == "float32"):
            arrays.append(np.arange(2**16, dtype=np.uint16).view(start))
        else:
            arrays.append(_ties(start))
        arrays = [at_offset(one, i * start.itemsize % 16) for i, one in enumerate(arrays)]
        shift = int(generator.integers(0, 2))
        results = [
            at_offset(np.zeros(one.size, to), (i + shift) * to.itemsize % 16)
            for i, one in enumerate(arrays)
        ]
        pieces = np.zeros(len(arrays), CAST_PIECE)
        pieces["from"] = [one.ctypes.data for one in arrays]
        pieces["to"] = [one.ctypes.data for one in results]
        pieces["count"] = [one.size for one in arrays]
        table = np.zeros((), table_dtype(CAST_PIECE))
        with filled_on_host(table, pieces, pieces["count"], _CHUNK):
            library.run(instance_name("cast", type_name(to), type_name(start)), 4, 64, table)
        with np.errstate(all="ignore"):
            for one, got in zip(arrays, results, strict=True):
                check(same_bits(got, one.astype(to)), f"{from_name} to {to_name}, {one.size}")


def _ties(dtype: np.dtype[np.generic]) -> Array:
    """Return the middles between neighbouring half numbers, and numbers just beside them."""
    halves = np.arange(0, 0x7C00, 37, dtype=np.uint16)
    pairs = (halves.view(np.float16), (halves + 1).astype(np.uint16).view(np.float16))
    with np.errstate(all="ignore"):
        middle = ((pairs[0].astype(np.float64) + pairs[1].astype(np.float64)) / 2).astype(dtype)
        if dtype.itemsize == 2:
            return middle
        beside = [np.nextafter(middle, dtype.type(end)) for end in (np.inf, -np.inf)]
    return np.concatenate([middle, *beside, -middle])
