"""Conformance of backends: memory layouts of inputs and of ``out``, and array-likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mpistrat.collectives.communicator import Communicator
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.testing.backends.cases import BackendCases
from mpistrat.testing.backends.samples import assert_same, expected_reduction, ops_for, sample
from mpistrat.types import Array

__all__ = ["ArrayCases"]

_SHAPES: tuple[tuple[int, ...], ...] = ((4, 3), (16, 30))  # inline, and through the backend


def _layouts(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield arrays equal to `array` whose memory is laid out otherwise."""
    yield "Fortran order", np.asfortranarray(array)
    # Equal to `array`, with negative strides.
    yield "reversed", np.flip(np.flip(array).copy())
    spread = np.zeros((*array.shape, 3), array.dtype)[..., 1]
    spread[...] = array
    yield "every third", spread
    read_only = array.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    # One byte behind what NumPy allocates, which is aligned.
    unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    yield "unaligned", unaligned


class _Foreign:
    """An array of another library."""

    def __init__(self, array: Array, is_dlpack: bool) -> None:
        self._array = array
        # On the instance, which is enough for hasattr; without it only __array__ is left.
        if is_dlpack:
            self.__dlpack__ = array.__dlpack__
            self.__dlpack_device__ = array.__dlpack_device__

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)


class ArrayCases(BackendCases):
    """Layouts of memory, `out`, and things that are not arrays yet."""

    def test_layouts_of_the_input(self, size: int, moved: str) -> None:
        """Any strides, no write access, no alignment."""

        def body(comm: Communicator) -> None:
            for shape in _SHAPES:
                everyone = [sample(moved, shape, rank) for rank in range(comm.size)]
                total = expected_reduction("sum", everyone)
                for name, mine in _layouts(everyone[comm.rank]):
                    assert_same(comm.allreduce(mine), total, f"allreduce, {name}")
                    assert_same(comm.bcast(mine), everyone[0], f"bcast, {name}")
                    joined = comm.allgather(mine, axis=1)
                    assert_same(joined, np.concatenate(everyone, 1), f"allgather, {name}")
                    piece = comm.reduce_scatter(mine, axis=1)
                    lengths = comm.allgather_object(piece.shape[1])
                    start = sum(lengths[: comm.rank])
                    want = total[:, start : start + piece.shape[1]]
                    assert_same(piece, want, f"reduce_scatter, {name}")
                    assert_same(mine, everyone[comm.rank], f"the input afterwards, {name}")

        self.run(size, body)

    def test_bool_of_any_byte(self, size: int) -> None:
        """What is not 0 is true, and results are bytes of 0 and 1 (as NumPy makes them)."""

        def body(comm: Communicator) -> None:
            for shape in ((), (12,), (400,)):
                everyone = [_odd_bools(shape, rank) for rank in range(comm.size)]
                mine, plain = everyone[comm.rank], [array != 0 for array in everyone]
                for op in ops_for("bool"):
                    want = expected_reduction(op, plain)
                    _assert_same_bytes(comm.allreduce(mine, op), want, f"allreduce {op}")
                    for packed in comm.allreduce_many([mine, mine], op):
                        _assert_same_bytes(packed, want, f"allreduce_many {op}")
                    total = comm.reduce(mine, op)
                    if total is not None:
                        _assert_same_bytes(total, want, f"reduce {op}")
                    if shape:
                        pieces = comm.allgather(comm.reduce_scatter(mine, op))
                        _assert_same_bytes(pieces, want, f"reduce_scatter {op}")
                assert_same(mine, _odd_bools(shape, comm.rank), "the input afterwards")

        self.run(size, body)

    def test_scatter_and_alltoall_of_layouts(self, size: int) -> None:
        """Blocks are cut along the axis, not along the memory."""

        def body(comm: Communicator) -> None:
            n = comm.size
            for width in (3, 100):
                everyone = [sample("float64", (n, width), rank) for rank in range(n)]
                for name, mine in _layouts(everyone[comm.rank]):
                    got = comm.scatter(mine if comm.rank == 0 else None)
                    want = everyone[0][comm.rank : comm.rank + 1]
                    assert_same(got, want, f"scatter, {name}")
                    blocks = [array[comm.rank : comm.rank + 1] for array in everyone]
                    assert_same(comm.alltoall(mine), np.concatenate(blocks), f"alltoall, {name}")
                    joined = comm.gather(mine, root=n - 1)
                    if comm.rank == n - 1:
                        assert_same(joined, np.concatenate(everyone), f"gather, {name}")

        self.run(size, body)

    def test_out(self, size: int, moved: str) -> None:
        """The result is `out` itself: contiguous, strided, the input, or overlapping it."""

        def body(comm: Communicator) -> None:
            for count in (12, 400):
                everyone = [sample(moved, (count,), rank) for rank in range(comm.size)]
                for op in ops_for(moved):
                    want = expected_reduction(op, everyone)
                    for name, mine, out in _outs(everyone[comm.rank], want.dtype):
                        assert comm.allreduce(mine, op, out=out) is out
                        assert_same(out, want, f"allreduce {op}, out {name}")
                    for name, mine, out in _outs(everyone[comm.rank], want.dtype):
                        if comm.rank == 0:
                            assert comm.reduce(mine, op, out=out) is out
                            assert_same(out, want, f"reduce {op}, out {name}")
                        else:
                            assert comm.reduce(mine, op) is None
                for name, mine, out in _outs(everyone[comm.rank], everyone[0].dtype):
                    root = comm.size - 1
                    assert comm.bcast(mine, root, out=out) is out
                    assert_same(out, everyone[root], f"bcast, out {name}")

        self.run(size, body)

    def test_out_in_place_of_any_shape(self, size: int) -> None:
        """0-d, empty and Fortran-ordered arrays can be their own `out`."""

        def body(comm: Communicator) -> None:
            total = float(sum(range(1, comm.size + 1)))
            for shape in ((), (0,), (3, 4), (20, 30)):
                for order in ("C", "F"):
                    array = np.full(shape, comm.rank + 1.0, order=order)
                    comm.allreduce(array, out=array)
                    assert_same(array, np.full(shape, total), f"{shape} in order {order}")

        self.run(size, body)

    def test_what_is_not_an_array_yet(self, size: int) -> None:
        """Numbers, NumPy scalars, nested lists, and arrays of other libraries."""

        def body(comm: Communicator) -> None:
            n = comm.size
            plain = np.arange(3.0)
            cases = [
                (2, np.array(2 * n)),
                (True, np.array(True)),
                (1.5, np.array(1.5 * n)),
                (2j, np.array(2j * n)),
                (np.float32(2), np.array(2 * n, np.float32)),
                ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]) * n),
                (_Foreign(plain, is_dlpack=False), plain * n),
                (_Foreign(plain, is_dlpack=True), plain * n),
            ]
            for value, want in cases:
                assert_same(comm.allreduce(value), want, f"sum of {value!r}")
            assert_same(comm.allgather([comm.rank]), np.arange(n), "gathered lists")

        self.run(size, body)

    def test_arrays_that_cannot_be_sent(self, size: int) -> None:
        """Objects, text, long doubles and foreign byte orders are refused on every rank."""

        def body(comm: Communicator) -> None:
            bad: list[tuple[Any, type[Exception], str]] = [
                (np.array([None, 1]), ArgumentTypeError, "dtype object cannot be sent"),
                (np.array(["a"]), ArgumentTypeError, "dtype <U1 cannot be sent"),
                (np.zeros(2, np.longdouble), ArgumentTypeError, "cannot be sent"),
                (np.zeros(2, "M8[s]"), ArgumentTypeError, "cannot be sent"),
                (np.zeros(2, [("a", int)]), ArgumentTypeError, "cannot be sent"),
                (np.zeros(2, ">f4"), UsageError, r"dtype >f4 is not in this machine's byte"),
                (np.zeros(2, ">i8"), UsageError, "byte order"),
                ([[1, 2], [3]], ArgumentTypeError, "cannot make an array of a list"),
                (10**30, ArgumentTypeError, "dtype object cannot be sent"),
                (object(), ArgumentTypeError, "dtype object cannot be sent"),
            ]
            calls: list[Callable[[Any], Any]] = [
                *(comm.allreduce, comm.reduce, comm.bcast, comm.allgather, comm.gather),
                *(comm.alltoall, comm.reduce_scatter, lambda x: comm.allreduce_many([1.0, x])),
            ]
            for value, kind, text in bad:
                for call in calls:
                    with pytest.raises(kind, match=text):
                        call(value)
            assert comm.allreduce(1) == comm.size

        self.run(size, body)


def _odd_bools(shape: tuple[int, ...], rank: int) -> Array:
    """Return bools whose bytes are 0 to 4: no two ranks' true ones need share a bit."""
    count = int(np.prod(shape, dtype=np.int64))
    numbers = (np.arange(count) * 3 + rank + 1) % 5
    return numbers.astype(np.uint8).view(np.bool_).reshape(shape)


def _assert_same_bytes(got: Array, want: Array, what: str) -> None:
    assert_same(got, want, what)
    assert got.tobytes() == want.tobytes(), f"{what}: got the bytes {got.tobytes()[:20]!r}"


def _outs(array: Array, dtype: np.dtype[Any]) -> Iterator[tuple[str, Array, Array]]:
    """Yield an input equal to `array` and an `out` for it, new ones each time."""
    count = array.size
    yield "apart", array.copy(), np.zeros(count, dtype)
    memory = np.zeros(count * dtype.itemsize + 1, np.uint8)
    yield "unaligned", array.copy(), memory[1:].view(dtype)
    yield "strided", array.copy(), np.zeros((count, 2), dtype)[:, 1]
    if dtype == array.dtype:
        own = array.copy()
        yield "the input", own, own
        memory = np.concatenate([array, array[:1]])
        yield "overlapping the input", memory[:-1], memory[1:]
        memory = np.concatenate([array[:1], array])
        yield "overlapping the input from before", memory[1:], memory[:-1]
        backwards = array[::-1].copy()[::-1]
        yield "the input, whose strides are negative", backwards, backwards
