"""Launch each family of kernels on odd sizes and alignments: a program for compute-sanitizer.

Every array has memory of its own from the driver, which ends where the array does: an access past
an end is then one of no allocation. Results are compared with NumPy as well. Exit status 0 says
that all were right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from helpers.gpu_kernels.arrays import dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import CASTS, reductions
from helpers.gpu_kernels.reductions import expected
from mpistrat.collectives.backends.gpu.kernels import movement, rows, updates
from mpistrat.collectives.backends.gpu.kernels.reductions import (
    FLAGS_NBYTES,
    OneShot,
    one_shot,
    slice_reduce,
)
from mpistrat.tables.reduction_ops import result_dtype
from mpistrat.tables.update_rules import AdagradRule, AdamRule, SGDRule
from mpistrat.types import Array

SIZES = (1, 33, 1031)
QUICK = "--quick"


def at_shift(values: Array, shift: int = 0) -> Any:
    """Return a copy on the GPU, `shift` elements behind the beginning of memory of its own."""
    import cupy

    before = shift * values.itemsize
    memory = cupy.cuda.alloc(before + values.nbytes)
    array = cupy.ndarray(values.shape, values.dtype, memory + before)
    if values.size:
        array.set(values)
    return array


def right(is_right: bool, what: str) -> None:
    """Raise unless a result is right."""
    if not is_right:
        raise AssertionError(what)


def slices(generator: np.random.Generator, *, is_quick: bool) -> None:
    """Reduce parts of 1 to 16 arrays, in place and apart, each array at a shift of its own."""
    for op, name in (
        [("sum", "float32"), ("mean", "float16")] if is_quick else reductions(are_all=False)
    ):
        dtype = dtype_of(name)
        for ranks, size in ((1, 1), (2, 33), (3, 1031), (16, 257)):
            hosts = [random_values(generator, dtype, size) for _ in range(ranks)]
            sources = [at_shift(one, rank % 5) for rank, one in enumerate(hosts)]
            result = result_dtype(op, dtype)
            in_place = result == dtype and ranks != 3
            results = (
                sources if in_place else [at_shift(np.zeros(size, result), r) for r in (0, 3)]
            )
            begin, end = size // 3, size
            addresses = ([one.data.ptr for one in some] for some in (sources, results))
            slice_reduce(op, dtype, *addresses, begin, end)
            want = expected(op, [one[begin:end].copy() for one in hosts])
            for one in results:
                right(same_bits(one.get()[begin:end], want), f"{op} of {name}, {ranks} ranks")


def one_shots(generator: np.random.Generator, *, is_quick: bool) -> None:
    """All-reduce of a rank alone: other ranks would have to run at the same time."""
    import cupy

    words = cupy.cuda.alloc_pinned_memory(8)
    np.frombuffer(words, np.uint32, 2)[:] = 0
    for name in ("float16",) if is_quick else ("float16", "float32", "float64"):
        dtype = dtype_of(name)
        for size in SIZES:
            slots = [at_shift(np.zeros(size, dtype)) for _ in range(2)]
            flags = at_shift(np.zeros(FLAGS_NBYTES, np.uint8))
            pointers = tuple((one.data.ptr,) for one in slots)
            shared = OneShot(0, pointers, (flags.data.ptr,), words.ptr, words.ptr + 4)
            host = random_values(generator, dtype, size)
            given, out = at_shift(host, 1), at_shift(np.zeros(size, dtype), 3)
            for number in (1, 2, 3):
                one_shot(shared, "sum", dtype, (given.data.ptr, out.data.ptr), size, number)
            right(same_bits(out.get(), host), f"one-shot of {size} {name}")


def moves(generator: np.random.Generator, *, is_quick: bool) -> None:
    """Pack and unpack lists that fit into a launch and that do not, and join along each axis."""
    for count in (3, 60):
        hosts = [
            generator.integers(0, 256, n, np.uint8) for n in generator.integers(0, 3000, count)
        ]
        there = [at_shift(one, i % 16) for i, one in enumerate(hosts)]
        whole = np.concatenate(hosts)
        flat = at_shift(np.zeros_like(whole), 1)
        movement.pack(there, flat.data.ptr)
        right(same_bits(flat.get(), whole), f"{count} packed")
        back = [at_shift(np.zeros_like(one), (i + 7) % 16) for i, one in enumerate(hosts)]
        movement.unpack(flat.data.ptr, back)
        right(all(map(np.array_equal, [one.get() for one in back], hosts)), f"{count} unpacked")
    for axis in range(1 if is_quick else 3):
        shapes = [[3, 5, 7] for _ in range(3)]
        for shape, length in zip(shapes, (2, 0, 9), strict=True):
            shape[axis] = length
        hosts = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
        want = np.concatenate(hosts, axis)
        out = at_shift(np.zeros_like(want), 1)
        movement.concatenate([at_shift(one, 3) for one in hosts], axis, out)
        right(same_bits(out.get(), want), f"joined along {axis}")


def casts(generator: np.random.Generator, *, is_quick: bool) -> None:
    """Convert between all floating dtypes."""
    for to, start in [("float16", "float32")] if is_quick else CASTS:
        hosts = [random_values(generator, dtype_of(start), size) for size in SIZES]
        results = [at_shift(np.zeros(one.size, dtype_of(to)), i) for i, one in enumerate(hosts)]
        movement.cast([at_shift(one, i + 1) for i, one in enumerate(hosts)], results)
        with np.errstate(all="ignore"):
            for got, one in zip(results, hosts, strict=True):
                right(same_bits(got.get(), one.astype(dtype_of(to))), f"{start} to {to}")


def rules(generator: np.random.Generator, *, is_quick: bool) -> None:
    """Apply the optimizers' rules to few variables, and to more than fit into a launch."""
    named = (SGDRule(), SGDRule(momentum=0.9), SGDRule(momentum=0.9, nesterov=True))
    others = (AdagradRule(), AdamRule(), AdamRule(amsgrad=True))
    for rule in (AdamRule(),) if is_quick else (*named, *others):
        for name, count in (("float32", 40), ("float16", 3)):
            sizes = [int(one) for one in generator.integers(0, 700, count)]
            wants = [random_values(generator, dtype_of(name), size) for size in sizes]
            kept = rule.slot_dtype(dtype_of(name))
            slots = [
                {s: np.full(n, v, kept) for s, v in rule.initial_slots().items()} for n in sizes
            ]
            given = [random_values(generator, dtype_of("float32"), size) for size in sizes]
            work = [
                updates.Update(
                    at_shift(want, i % 3),
                    {s: at_shift(one, i % 3) for s, one in mine.items()},
                    at_shift(gradient, i % 2),
                )
                for i, (want, mine, gradient) in enumerate(zip(wants, slots, given, strict=True))
            ]
            updates.apply_rule(rule, work, 1, 0.01)
            with np.errstate(all="ignore"):
                for want, mine, gradient in zip(wants, slots, given, strict=True):
                    rule.apply_in_numpy(want, mine, gradient, 1, 0.01)
            got = [one.variable.get() for one in work]
            right(all(map(same_bits, got, wants)), f"{rule} of {name}")


def tables(generator: np.random.Generator, *, is_quick: bool) -> None:
    """Add rows to rows, some of which come many times, by indices of the host and there."""
    names = ("float32",) if is_quick else ("float32", "float16", "bfloat16", "int8", "complex128")
    for name in names:
        for columns in (1, 5, 16):
            _added(generator, (37, 120, columns), name, "int64")
    # Ordered on the GPU by one block, and by four, in two and in three passes.
    _added(generator, (300, 2048, 4), "float32", "int32")
    _added(generator, (300, 3 * 2048 + 5, 4), "float32", "int32")
    if not is_quick:
        _added(generator, (70_000, 3 * 2048 + 5, 4), "float32", "int64")
        _added(generator, (1, 5000, 3), "float32", "uint8")


def _added(
    generator: np.random.Generator, sizes: tuple[int, int, int], name: str, kind: str
) -> None:
    num_rows, count, columns = sizes
    values = generator.integers(0, 3, (count, columns)).astype(dtype_of(name))
    indices = (generator.integers(0, num_rows, count) ** 2 // num_rows).astype(kind)
    for given in (indices, at_shift(indices, 1)):
        table = np.zeros((num_rows, columns), dtype_of(name))
        there = at_shift(table, 1)
        rows.scatter_add(there, given, at_shift(values, 1))
        np.add.at(table, indices, values)
        right(same_bits(there.get(), table), f"{count} rows of {columns} {name}")


FAMILIES: tuple[Callable[..., None], ...] = (slices, one_shots, moves, casts, rules, tables)


def main() -> None:
    """Run all families; print a line for each."""
    import cupy

    # No pools: an access past an end would fall into other memory of theirs, unseen.
    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    generator = np.random.default_rng(11)
    for family in FAMILIES:
        family(generator, is_quick=QUICK in sys.argv[1:])
        cupy.cuda.Device().synchronize()
        print(f"{family.__name__}: right", flush=True)


if __name__ == "__main__":
    main()
