"""Order row numbers on a GPU, stably, by kernels of our own (row_order.cu)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.arrays.gpu_streams import recorded
from mpistrat.collectives.backends.gpu.kernels.launch import (
    THREADS,
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.types import Array

__all__ = [
    "DIGITS",
    "DIGIT_BITS",
    "MAX_INDICES",
    "ROW_ORDER",
    "TILE",
    "Ordered",
    "PendingIndexCheck",
    "index_bytes",
    "key_bits",
    "order",
    "passes_of",
]

MAX_INDICES = 2**30 - 1
"""Indices that the kernels can count."""

TILE = 2048
"""Keys of a block, which has 256 threads; so many are ordered by one launch."""

DIGIT_BITS, DIGITS = 8, 256
"""Of the rows' numbers, each launch orders by so many bits."""

ROW_ORDER = np.dtype(
    [
        *((name, np.uint64) for name in ("indices", "from", "to", "counts", "states", "ticket")),
        *((name, np.uint64) for name in ("bad", "count", "num_rows")),
        *((name, np.uint32) for name in ("shift", "bits", "bit")),
        ("index_bytes", np.int32),
    ]
)
"""``RowOrder`` of row_keys.cuh."""


class PendingIndexCheck:
    """Whether all indices are rows, as the GPU finds it: brought to the host meanwhile.

    Parameters
    ----------
    bad
        The word that the kernel writes, once it is queued.
    """

    def __init__(self, bad: Any) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream()
        self._memory = cupy.cuda.alloc_pinned_memory(bad.nbytes)
        self._word = np.frombuffer(self._memory, bad.dtype, 1)
        copy, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDeviceToHost
        copy(self._memory.ptr, bad.data.ptr, bad.nbytes, kind, stream.ptr)
        self._arrived = recorded(cupy, stream)

    def read(self) -> int:
        """Wait until the indices have been looked at, not for what is queued behind that.

        Returns
        -------
        int
            0, or the number of indices from the first on that is no row.
        """
        self._arrived.synchronize()
        return int(self._word[0])


class Ordered(NamedTuple):
    """What was queued on the current stream.

    Attributes
    ----------
    keys
        Of dtype uint64, ascending: each has its row above `shift` bits of its position.
    shift
        How many bits.
    bad
        On the GPU, of dtype uint32: not 0 if an index is no row, and the keys mean nothing. None
        if all are.
    index_check
        The same, for the host; None if it knows.
    """

    keys: Any
    shift: int
    bad: Any | None
    index_check: PendingIndexCheck | None


def key_bits(count: int, num_rows: int) -> tuple[int, int]:
    """Return how many bits of a key are the position's and the row's."""
    return max(count - 1, 0).bit_length(), max(num_rows - 1, 0).bit_length()


def passes_of(row_bits: int) -> int:
    """Return how many launches it takes to order by so many bits."""
    return -(-row_bits // DIGIT_BITS)


def order(indices: Any, num_rows: int, *, are_checked: bool = False) -> Ordered:
    """Order positions by their row, those of one row ascending. **Local.** Waits for nothing.

    By one launch for up to `TILE` indices; else by two, and one for each 8 bits of a row's number.
    The order is that of a stable sort, in every run: what the blocks count has no other influence.

    Parameters
    ----------
    indices
        An array of CuPy on the current GPU, of whole numbers, of shape [n], n from 1 to
        `MAX_INDICES`.
        The bits of `key_bits` are at most 64 together.
    num_rows
        Of the table.
    are_checked
        All indices are known to be rows.
    """
    import cupy

    shift, bits = key_bits(len(indices), num_rows)
    indices = cupy.ascontiguousarray(indices)
    call = np.zeros((), ROW_ORDER)
    call["indices"], call["index_bytes"] = indices.data.ptr, index_bytes(indices.dtype)
    call["count"], call["num_rows"] = len(indices), num_rows
    call["shift"], call["bits"] = shift, bits
    ordering = _order_by_one_launch if len(indices) <= TILE else _order_by_several
    return ordering(call, are_checked)


def index_bytes(dtype: np.dtype[Any]) -> int:
    """Return what tells the kernels a dtype of whole numbers: its size, negative if signed."""
    return -dtype.itemsize if dtype.kind == "i" else dtype.itemsize


def _order_by_one_launch(call: Array, are_checked: bool) -> Ordered:
    import cupy

    count = int(call["count"])
    memory = cupy.empty(count + 1, np.uint64)
    keys, bad = memory[:count], memory[count:].view(np.uint32)[:1]
    call["to"], call["bad"] = keys.data.ptr, bad.data.ptr
    launch(kernel(current_device(), "order_few", file="row_order"), 1, call)
    return Ordered(keys, int(call["shift"]), bad, None if are_checked else PendingIndexCheck(bad))


def _order_by_several(call: Array, are_checked: bool) -> Ordered:
    import cupy

    count, passes = int(call["count"]), passes_of(int(call["bits"]))
    tiles = -(-count // TILE)
    # For each pass a ticket, the counts of digits, and what each tile tells the others.
    zeros = cupy.zeros(1 + passes * (1 + DIGITS + tiles * DIGITS), np.uint32)
    keys, others = cupy.empty((2, count), np.uint64)
    device, bad = current_device(), zeros[:1]
    tickets, counts = zeros[1:], zeros[1 + passes :]
    states = counts[passes * DIGITS :]
    call["to"], call["bad"], call["counts"] = keys.data.ptr, bad.data.ptr, counts.data.ptr
    make = kernel(device, "make_keys", file="row_order")
    launch(make, blocks_for(device, -(-count // (2 * THREADS))), call)
    # Before the passes, which the GPU goes on with meanwhile.
    index_check = None if are_checked else PendingIndexCheck(bad)
    for number in range(passes):
        call["from"], call["to"] = keys.data.ptr, others.data.ptr
        call["ticket"] = tickets.data.ptr + number * 4
        call["counts"] = counts.data.ptr + number * DIGITS * 4
        call["states"] = states.data.ptr + number * tiles * DIGITS * 4
        call["bit"] = int(call["shift"]) + number * DIGIT_BITS
        launch(kernel(device, "order_digit", file="row_order"), tiles, call)
        keys, others = others, keys
    return Ordered(keys, int(call["shift"]), bad, index_check)
