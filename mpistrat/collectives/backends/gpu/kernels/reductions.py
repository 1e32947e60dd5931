"""Reduce arrays on a GPU: slices of all ranks' arrays, or all of them in one kernel.

Both take addresses of GPU memory, which may be that of other processes, opened by IPC handles.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    THREADS,
    blocks_for,
    current_device,
    kernel,
    launch,
    pointers,
)
from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import check_op, result_dtype

__all__ = [
    "FLAGS_NBYTES",
    "MAX_RANKS",
    "ONE_SHOT",
    "SLICE_REDUCE",
    "OneShot",
    "one_shot",
    "one_shot_blocks",
    "one_shot_kernel",
    "slice_reduce",
]

MAX_RANKS = 16
"""Ranks of a machine that one kernel reduces: the length of its lists."""

_MAX_BLOCKS = 36  # of the one-shot all-reduce: all must run at once, on any GPU
_ONE_SHOT_THREADS = 512
FLAGS_NBYTES = _MAX_BLOCKS * MAX_RANKS * 4
"""Size of each rank's page of flags for the one-shot all-reduce, which begins as zeros."""

_List = (np.uint64, MAX_RANKS)

SLICE_REDUCE = np.dtype(
    [
        ("sources", *_List),
        ("results", *_List),
        ("num_sources", np.int32),
        ("num_results", np.int32),
        ("begin", np.uint64),
        ("end", np.uint64),
    ]
)
"""``SliceReduce`` of slice_reduce.cu."""

ONE_SHOT = np.dtype(
    [
        ("input", np.uint64),
        ("output", np.uint64),
        ("slot", np.uint64),
        ("slots", *_List),
        ("flags", *_List),
        ("cancel", np.uint64),
        ("missing", np.uint64),
        ("rank", np.int32),
        ("num_ranks", np.int32),
        ("round", np.uint32),
        ("count", np.uint64),
    ],
    align=True,
)
"""``OneShot`` of one_shot.cu."""

_ROUND_AT = ONE_SHOT.fields["round"][1]  # type: ignore[index]


def slice_reduce(
    op: str,
    dtype: np.dtype[Any],
    sources: Sequence[int],
    results: Sequence[int],
    begin: int,
    end: int,
) -> None:
    """Reduce elements `begin` to `end` of several arrays into each of several. **Local.**

    Launched on the current stream, and not waited for.

    Parameters
    ----------
    op, dtype
        The reduction, and the dtype of the sources; that of the results is
        `mpistrat.tables.reduction_ops.result_dtype`.
    sources
        Addresses of 1 to 16 arrays, in the order in which they are reduced; aligned as their
        elements are.
    results
        Addresses of 1 to 16 arrays. Each may be one of the sources; no other overlap.
    begin, end
        The slice. Results outside of it are not touched.
    """
    check_op(op, dtype)
    memory = tuple(sources), tuple(results)
    call = _slice_call(current_device(), op, dtype, memory, (begin, end))
    if call is not None:
        launch(call.function, call.blocks, call.arguments)


class _Call(NamedTuple):
    """A launch of a kernel that was compiled for a device."""

    function: Any
    blocks: int
    arguments: bytes


@lru_cache(maxsize=512)  # carriers and training loops reduce the same memory again and again
def _slice_call(
    device: int,
    op: str,
    dtype: np.dtype[Any],
    memory: tuple[tuple[int, ...], tuple[int, ...]],
    part: tuple[int, int],
) -> _Call | None:
    (sources, results), (begin, end) = memory, part
    _check(sources, "sources", dtype.itemsize)
    _check(results, "results", result_dtype(op, dtype).itemsize)
    if begin >= end:
        return None
    arguments = np.zeros((), SLICE_REDUCE)
    arguments["sources"] = pointers(list(sources), MAX_RANKS)
    arguments["results"] = pointers(list(results), MAX_RANKS)
    arguments["num_sources"], arguments["num_results"] = len(sources), len(results)
    arguments["begin"], arguments["end"] = begin, end
    accesses = -(-(end - begin) * _widest(op, dtype) // 16)
    function = kernel(device, "slice_reduce", source.op_name(op), source.type_name(dtype))
    return _Call(function, blocks_for(device, -(-accesses // THREADS)), arguments.tobytes())


@dataclass(frozen=True)
class OneShot:
    """What the one-shot all-reduces of one rank share.

    Attributes
    ----------
    rank
        This rank.
    slots
        For each of the two slots that are taken in turn, the addresses of all ranks' slots, each
        at a multiple of 16 bytes.
    flags
        Addresses of all ranks' pages of flags, of `FLAGS_NBYTES` zeros at the beginning.
    cancel, missing
        Addresses of two 32-bit words in pinned memory of the host. The host sets the first to call
        a kernel off, which then names a rank that it waited for, plus 1, in the second; the
        output is undefined then.
    """

    rank: int
    slots: tuple[tuple[int, ...], tuple[int, ...]]
    flags: tuple[int, ...]
    cancel: int
    missing: int


def one_shot_blocks(nbytes: int) -> int:
    """Return how many blocks all-reduce so many bytes: the same on all ranks."""
    return max(1, min(_MAX_BLOCKS, -(-nbytes // (_ONE_SHOT_THREADS * 16))))


def one_shot(
    shared: OneShot,
    op: str,
    dtype: np.dtype[Any],
    arrays: tuple[int, int],
    count: int,
    round_number: int,
) -> None:
    """All-reduce in one kernel, which waits for the same kernel of all other ranks.

    **Collective.** Launched on the current stream, and not waited for. All ranks must have a GPU
    of their own, and call with the same op, dtype and count.

    Parameters
    ----------
    shared
        Of this rank.
    op, dtype, count
        The reduction of so many elements.
    arrays
        Addresses of the input and the output, in GPU memory of any kind; they may be the same.
        The output's dtype is `mpistrat.tables.reduction_ops.result_dtype`.
    round_number
        Of the call, from 1: one more each time.
    """
    check_op(op, dtype)
    place = current_device(), round_number % 2
    call = _one_shot_call(place, shared, op, dtype, arrays, count)
    number = (round_number % 2**32).to_bytes(4, sys.byteorder)
    arguments = call.arguments[:_ROUND_AT] + number + call.arguments[_ROUND_AT + 4 :]
    launch(call.function, call.blocks, arguments, _ONE_SHOT_THREADS)


@lru_cache(maxsize=256)
def _one_shot_call(
    place: tuple[int, int],
    shared: OneShot,
    op: str,
    dtype: np.dtype[Any],
    arrays: tuple[int, int],
    count: int,
) -> _Call:
    """Return the launch on a device for one of both slots, without the number of the round."""
    slots = shared.slots[place[1]]
    _check(slots, "slots", 16)
    _check(arrays[:1], "input", dtype.itemsize)
    _check(arrays[1:], "output", result_dtype(op, dtype).itemsize)
    arguments = np.zeros((), ONE_SHOT)
    arguments["input"], arguments["output"] = arrays
    arguments["slot"] = slots[shared.rank]
    arguments["slots"] = pointers(list(slots), MAX_RANKS)
    arguments["flags"] = pointers(list(shared.flags), MAX_RANKS)
    arguments["cancel"], arguments["missing"] = shared.cancel, shared.missing
    arguments["rank"], arguments["num_ranks"] = shared.rank, len(slots)
    arguments["count"] = count
    blocks = one_shot_blocks(count * _widest(op, dtype))
    return _Call(one_shot_kernel(op, dtype), blocks, arguments.tobytes())


def one_shot_kernel(op: str, dtype: np.dtype[Any]) -> Any:
    """Return the kernel for the current device; it is compiled if need be. **Local.**"""
    return kernel(current_device(), "one_shot", source.op_name(op), source.type_name(dtype))


def _widest(op: str, dtype: np.dtype[Any]) -> int:
    return max(dtype.itemsize, result_dtype(op, dtype).itemsize)


def _check(addresses: Sequence[int], what: str, alignment: int) -> None:
    if not 1 <= len(addresses) <= MAX_RANKS:
        raise UsageError(f"{len(addresses)} {what}; expected 1 to {MAX_RANKS}")
    for address in addresses:
        if address % alignment:
            raise UsageError(
                f"{what} at address {address:#x}; expected a multiple of {alignment} bytes"
            )
