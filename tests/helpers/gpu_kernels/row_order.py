"""Check row_order: keys in the order of a stable sort, by one launch and by several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from helpers.gpu_kernels.arrays import at_offset
from helpers.gpu_kernels.library import Library, check
from mpistrat.collectives.backends.gpu.kernels.row_order import (
    DIGIT_BITS,
    DIGITS,
    ROW_ORDER,
    TILE,
    index_bytes,
    key_bits,
    passes_of,
)
from mpistrat.collectives.backends.gpu.kernels.source import instance_name
from mpistrat.types import Array

__all__ = ["check_few", "check_many"]

_KINDS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
_THREADS = 256


def _indices(counts: tuple[int, ...], *, are_all: bool) -> Iterator[tuple[Array, int]]:
    """Yield indices and the number of rows: random, few different ones, and all the same."""
    generator = np.random.default_rng(3)
    for count in counts:
        for num_rows in (1, 2, 16, 100, 257, 2**20, 2**40) if are_all else (1, 2**20):
            yield generator.integers(0, num_rows, count), num_rows
        yield generator.integers(0, 3, count) * 20_000, 2**16
        yield np.full(count, 511), 512
    yield generator.integers(0, 2**60, 12), 2**60  # the last digit ends with the key


def _kinds_that_hold(indices: Array, *, are_all: bool) -> list[str]:
    fitting = [kind for kind in _KINDS if indices.max() <= np.iinfo(kind).max]
    return fitting if are_all else fitting[:1]


def _bad(count: int) -> Iterator[tuple[Array, int, int]]:
    """Yield indices of which some are no rows, the number of rows, and the first such position.

    A negative one would be a row, were it not of a signed type.
    """
    for kind, wrong, num_rows in (
        *(("int8", -1, 2**8), ("int16", -5, 2**16), ("int32", -7, 2**32), ("int64", -1, 2**40)),
        *(("int64", 100, 100), ("uint64", 2**64 - 1, 100)),
    ):
        indices = (np.arange(count) * 7 % 100).astype(kind)
        indices[[count // 2, count - 1]] = wrong
        yield indices, num_rows, count // 2
    indices = np.zeros(count, np.uint16)
    indices[0] = 1
    yield indices, 1, 0


def _call(indices: Array, num_rows: int) -> tuple[Array, Array, Array]:
    """Return a call, the memory of its keys, and the word for an index that is no row."""
    call, bad = np.zeros((), ROW_ORDER), at_offset(np.zeros(1, np.uint32), 0)
    keys = at_offset(np.zeros(len(indices), np.uint64), 0)
    call["indices"], call["index_bytes"] = indices.ctypes.data, index_bytes(indices.dtype)
    call["to"], call["bad"] = keys.ctypes.data, bad.ctypes.data
    call["count"], call["num_rows"] = len(indices), num_rows
    call["shift"], call["bits"] = key_bits(len(indices), num_rows)
    return call, keys, bad


def _few(library: Library, indices: Array, num_rows: int) -> tuple[Array, int]:
    call, keys, bad = _call(indices, num_rows)
    bad[0] = 77  # whatever the memory had before
    library.run(instance_name("order_few"), 1, _THREADS, call)
    return keys, int(bad[0])


def _many(library: Library, indices: Array, num_rows: int) -> tuple[Array, int]:
    call, keys, bad = _call(indices, num_rows)
    passes, tiles = passes_of(int(call["bits"])), -(-len(indices) // TILE)
    counts = at_offset(np.zeros(passes * DIGITS, np.uint32), 0)
    call["counts"] = counts.ctypes.data
    library.run(instance_name("make_keys"), 3, _THREADS, call)
    others = at_offset(np.zeros_like(keys), 0)
    for number in range(passes):
        states = at_offset(np.zeros(tiles * DIGITS, np.uint32), 0)
        ticket = at_offset(np.zeros(1, np.uint32), 0)
        call["from"], call["to"] = keys.ctypes.data, others.ctypes.data
        call["states"], call["ticket"] = states.ctypes.data, ticket.ctypes.data
        call["counts"] = counts.ctypes.data + number * DIGITS * 4
        call["bit"] = int(call["shift"]) + number * DIGIT_BITS
        library.run(instance_name("order_digit"), tiles, _THREADS, call)
        keys, others = others, keys
    return keys, int(bad[0])


def _check_keys(keys: Array, indices: Array, num_rows: int) -> None:
    shift, _ = key_bits(len(indices), num_rows)
    order = np.argsort(indices, kind="stable").astype(np.uint64)
    want = indices.astype(np.uint64)[order] << np.uint64(shift) | order
    what = f"{len(indices)} {indices.dtype} of {num_rows} rows"
    check(np.array_equal(keys, want), f"{what}: {keys} in place of {want}")


def _check(library: Library, counts: tuple[int, ...], *, is_few: bool, are_all: bool) -> None:
    ordered = _few if is_few else _many
    for indices, num_rows in _indices(counts, are_all=are_all):
        for kind in _kinds_that_hold(indices, are_all=are_all):
            given = at_offset(indices.astype(kind), 0)
            keys, bad = ordered(library, given, num_rows)
            check(bad == 0, f"{len(indices)} {kind} of {num_rows} rows: bad is {bad}")
            _check_keys(keys, given, num_rows)
    for count in counts if are_all else (257,):  # under ThreadSanitizer a tile takes 0.3 s
        for indices, num_rows, first in _bad(count):
            _, bad = ordered(library, at_offset(indices, 0), num_rows)
            check(bad == count - first, f"bad is {bad}, {first} of {count} {indices.dtype}")


def check_few(library: Library, *, are_all: bool) -> None:
    """Order up to a tile by one block."""
    counts = (1, 2, 9, 255, 257, 2047, TILE) if are_all else (257, TILE)
    _check(library, counts, is_few=True, are_all=are_all)


def check_many(library: Library, *, are_all: bool) -> None:
    """Order several tiles, the last of which is not full, by a launch for each digit."""
    counts = (3, TILE, TILE + 1, 3 * TILE, 12_345) if are_all else (3 * TILE + 77,)
    _check(library, counts, is_few=False, are_all=are_all)
