"""Check one_shot: ranks as threads, rounds of different sizes, and a rank that does not come."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import ONE_SHOTS
from helpers.gpu_kernels.library import Library, check
from helpers.gpu_kernels.reductions import expected
from mpistrat.collectives.backends.gpu.kernels.launch import pointers
from mpistrat.collectives.backends.gpu.kernels.reductions import FLAGS_NBYTES, MAX_RANKS, ONE_SHOT
from mpistrat.collectives.backends.gpu.kernels.source import instance_name, op_name, type_name
from mpistrat.tables.reduction_ops import result_dtype
from mpistrat.types import Array

__all__ = ["check_missing_rank", "check_rounds"]

_LARGEST = 1500
_THREADS = 32
_FIRST_ROUND = 2**32 - 2  # so that the numbers of the rounds wrap


@dataclass
class _Node:
    """What the ranks of a machine share."""

    slots: list[list[Array]]
    flags: list[Array]
    words: Array  # the host's, then the kernel's

    @classmethod
    def of(cls, ranks: int, dtype: np.dtype[Any]) -> _Node:
        slots = [[at_offset(np.zeros(_LARGEST, dtype), 0) for _ in range(ranks)] for _ in range(2)]
        flags = [np.full(FLAGS_NBYTES // 4, _FIRST_ROUND - 1, np.uint32) for _ in range(ranks)]
        return cls(slots, flags, np.zeros(64, np.uint32))

    def call(self, rank: int, arrays: tuple[Array, Array], round_number: int) -> Array:
        slots = [one.ctypes.data for one in self.slots[round_number % 2]]
        call = np.zeros((), ONE_SHOT)
        call["input"], call["output"] = (one.ctypes.data for one in arrays)
        call["slot"], call["slots"] = slots[rank], pointers(slots, MAX_RANKS)
        call["flags"] = pointers([one.ctypes.data for one in self.flags], MAX_RANKS)
        call["cancel"], call["missing"] = self.words.ctypes.data, self.words[32:].ctypes.data
        call["rank"], call["num_ranks"] = rank, len(slots)
        call["round"], call["count"] = round_number % 2**32, arrays[0].size
        return call


def _kernel(op: str, dtype: np.dtype[Any]) -> str:
    return instance_name("one_shot", op_name(op), type_name(dtype))


def check_rounds(library: Library, *, are_all: bool) -> None:
    """All-reduce several times on 1 to 16 ranks, whose kernels run in threads."""
    generator = np.random.default_rng(2)
    for op, name in ONE_SHOTS:
        for ranks in (1, 2, 3, 5, 16) if are_all else (1, 2, 3):
            _check_rounds(library, generator, op, dtype_of(name), ranks)


def _check_rounds(
    library: Library, generator: np.random.Generator, op: str, dtype: np.dtype[Any], ranks: int
) -> None:
    node = _Node.of(ranks, dtype)
    plan = [(int(generator.integers(1, _LARGEST)), blocks) for blocks in (3, 1, 4, 2, 3)]
    result = result_dtype(op, dtype)
    inputs, outputs = [], []
    for number, (size, _) in enumerate(plan):
        at = number % 3 * dtype.itemsize % 16
        mine = [at_offset(random_values(generator, dtype, size), at) for _ in range(ranks)]
        inputs.append(mine)
        at = number % 3 * result.itemsize % 16
        outputs.append([at_offset(np.zeros(size, result), at) for _ in range(ranks)])
    wants = [expected(op, [one.copy() for one in mine]) for mine in inputs]
    if result == dtype:
        outputs[1] = inputs[1]  # in place

    def run(rank: int) -> None:
        for number, (_, blocks) in enumerate(plan):
            arrays = (inputs[number][rank], outputs[number][rank])
            call = node.call(rank, arrays, _FIRST_ROUND + number)
            library.run(_kernel(op, dtype), blocks, _THREADS, call)

    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(run, range(ranks), timeout=120))
    for number, want in enumerate(wants):
        for rank, got in enumerate(outputs[number]):
            what = f"{op} of {dtype}, {ranks} ranks, round {number}, rank {rank}"
            check(same_bits(got, want), what)


def check_missing_rank(library: Library, *, are_all: bool) -> None:
    """Call a kernel off that waits for a rank: it ends, and says which."""
    del are_all
    dtype, ranks = np.dtype(np.float32), 3
    node = _Node.of(ranks, dtype)
    arrays = [(np.ones(500, dtype), np.zeros(500, dtype)) for _ in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        running = [
            pool.submit(
                library.run,
                _kernel("sum", dtype),
                2,
                _THREADS,
                node.call(rank, arrays[rank], _FIRST_ROUND),
            )
            for rank in (0, 2)
        ]
        time.sleep(0.05)
        check(not any(one.done() for one in running), "a rank ended without rank 1")
        node.words[0] = 1
        for one in running:
            one.result(timeout=60)
    check(int(node.words[32]) == 2, f"named rank {int(node.words[32]) - 1}; expected 1")
