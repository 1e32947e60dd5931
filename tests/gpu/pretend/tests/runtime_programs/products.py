"""Programs that multiply matrices, as CuPy does it on hipBLAS; NumPy says what is right."""

import contextlib
import itertools
from typing import Any

import cupy
import numpy as np
from calls import Hold, refused, start
from cupy import cublas
from cupy.cuda import Stream, runtime

DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
OPERATIONS = {"N": lambda a: a, "T": lambda a: a.T, "H": lambda a: a.conj().T}
Array = Any


def made(dtype: str, *shape: int) -> Array:
    """Return numbers of both signs, other ones at each call."""
    parts = RANDOM.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if dtype[0] == "c" else parts[0]).astype(dtype)


RANDOM = np.random.default_rng(0)


def assert_near(found: Array, wanted: Array) -> None:
    """Compare with a sum of about ten products in double precision."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    rounding = np.finfo(wanted.dtype).eps
    np.testing.assert_allclose(found.get(), wanted, rtol=50 * rounding, atol=50 * rounding)


def wide(array: Array) -> Array:
    """Return the numbers in double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def product(a: Array, b: Array) -> Array:
    """Return NumPy's product in double precision, rounded once."""
    return np.asarray(wide(a) @ wide(b)).astype(np.result_type(a, b))


def layouts(array: Array) -> list[Array]:
    """Return the same matrix on the device: by rows, by columns, and with gaps."""
    there = cupy.asarray(array)
    gaps = cupy.zeros((2 * len(array), array.shape[1] + 3), array.dtype)[::2, 1:-2]
    gaps[...] = there
    return [there, cupy.asfortranarray(there), gaps]


def matrices() -> None:
    for dtype in DTYPES:
        a, b = made(dtype, 7, 5), made(dtype, 5, 3)
        for one, other in itertools.product(layouts(a), layouts(b)):
            assert_near(one @ other, product(a, b))
            assert_near(other.T @ one.T, product(b.T, a.T))
            assert_near(cupy.dot(one, other), product(a, b))
            out = cupy.full((7, 3), np.nan, dtype)
            cupy.matmul(one, other, out=out)  # what is there is not read
            assert_near(out, product(a, b))


def vectors_and_tensors() -> None:
    for dtype in DTYPES:
        a, x, y = made(dtype, 4, 6), made(dtype, 4), made(dtype, 6)
        on_a, on_x, on_y = (cupy.asarray(one) for one in (a, x, y))
        assert_near(on_a @ on_y, product(a, y))
        assert_near(on_x @ on_a, product(x, a))
        assert_near(on_x @ on_x, product(x, x))
        assert_near(cupy.outer(on_x, on_y), np.outer(x, y))
        t = made(dtype, 3, 4, 6)
        wanted = np.tensordot(wide(t), wide(a), ([1, 2], [0, 1])).astype(dtype)
        assert_near(cupy.tensordot(cupy.asarray(t), on_a, ([1, 2], [0, 1])), wanted)
        wanted = np.tensordot(wide(t), wide(a), ([1], [0])).astype(dtype)
        assert_near(cupy.tensordot(cupy.asarray(t), on_a, ([1], [0])), wanted)


def batches() -> None:
    for dtype in DTYPES:
        for left, right in [
            ((3, 4, 5), (3, 5, 2)),
            ((3, 4, 5), (5, 2)),
            ((2, 1, 4, 5), (3, 5, 2)),
        ]:
            a, b = (made(dtype, *map(int, shape)) for shape in (left, right))
            assert_near(cupy.matmul(cupy.asarray(a), cupy.asarray(b)), product(a, b))


def nothing() -> None:
    for shapes in [((0, 5), (5, 3)), ((4, 0), (0, 3)), ((4, 5), (5, 0)), ((2, 0, 5), (2, 5, 3))]:
        a, b = (np.ones(shape) for shape in shapes)
        assert_near(cupy.asarray(a) @ cupy.asarray(b), a @ b)


def scalars() -> None:
    """Alpha and beta, on the host and on the device, and all operations."""
    for dtype, (left, f), (right, g) in itertools.product(
        DTYPES[1:], OPERATIONS.items(), OPERATIONS.items()
    ):
        a, b, c = made(dtype, 4, 4), made(dtype, 4, 4), made(dtype, 4, 4)
        wanted = (2 * f(wide(a)) @ g(wide(b)) - 3 * wide(c)).astype(dtype)
        for alpha, beta in [(2, -3), (cupy.full((), 2, dtype), cupy.full((), -3, dtype))]:
            out = cupy.array(c, order="F")
            given = (cupy.array(one, order="F") for one in (a, b))
            cublas.gemm(left, right, *given, out=out, alpha=alpha, beta=beta)
            assert_near(out, wanted)
        x, y = made(dtype, 4), made(dtype, 4)
        out = cupy.asarray(y)
        cublas.gemv(left, 2, cupy.array(a, order="F"), cupy.asarray(x), -3, out)
        assert_near(out, (2 * f(wide(a)) @ wide(x) - 3 * wide(y)).astype(dtype))


def sums_of_products() -> None:
    """Of two vectors: a matrix, or a number on the device or on the host."""
    for dtype in DTYPES[1:]:
        x, y, a = made(dtype, 6), made(dtype, 4), made(dtype, 6, 4)
        on_x, on_y = cupy.asarray(x), cupy.asarray(y)
        if dtype[0] == "c":
            updates = [(cublas.geru, y), (cublas.gerc, y.conj())]
            inner = [(cublas.dotu, x), (cublas.dotc, x.conj())]
        else:
            updates, inner = [(cublas.ger, y)], [(cublas.dot, x)]
        for function, row in updates:
            out = cupy.array(a, order="F")
            function(2, on_x, on_y, out)
            assert_near(out, (2 * np.outer(wide(x), wide(row)) + wide(a)).astype(dtype))
        for function, left in inner:
            wanted = np.asarray(wide(left) @ wide(x)).astype(dtype)
            assert_near(function(on_x, on_x), wanted)
            on_host = np.empty((), dtype)
            function(on_x, on_x, out=on_host)
            np.testing.assert_allclose(on_host, wanted, rtol=1e-5)


def sums() -> None:
    """Of two matrices, by rows or by columns, which may be transposed."""
    for dtype, (left, right) in itertools.product(DTYPES[1:], ["NN", "TN", "NH", "TT"]):
        a, b = made(dtype, 3, 3), made(dtype, 3, 3)
        f, g = OPERATIONS[left], OPERATIONS[right]
        wanted = (2 * f(wide(a)) - 3 * g(wide(b))).astype(dtype)
        given = [cupy.array(one, order="F") for one in (a, b)]
        assert_near(cublas.geam(left, right, 2, given[0], -3, given[1]), wanted)


def in_order_of_the_stream() -> None:
    """A product waits for what was queued before it on its stream, and for nothing else."""
    stream, hold = Stream(non_blocking=True), Hold()
    a, b = cupy.zeros((3, 3)), cupy.full((3, 3), 2.0)
    cupy.full((), 3.0)  # its kernel is compiled
    a @ b
    runtime.deviceSynchronize()
    hold.begin(stream)
    with stream:
        a.fill(1)
        c = a @ b
        b.fill(0)
        d = c.copy()
    assert not stream.done
    assert (a @ b).get().tolist() == [[0] * 3] * 3
    hold.end()
    stream.synchronize()
    assert d.get().tolist() == [[6] * 3] * 3


def of_each_device() -> None:
    """Each has its handle; the memory of one is not there for the other."""
    a = np.arange(9.0).reshape(3, 3)
    for number in (1, 0, 1):
        with cupy.cuda.Device(number):
            assert_near(cupy.asarray(a) @ cupy.asarray(a), a @ a)


def memory_of_the_host() -> None:
    c, host = cupy.zeros((2, 2)), np.ones((2, 2))
    one = np.ones(())
    handle = cupy.cuda.device.get_cublas_handle()
    scalars = (one.ctypes.data, host.ctypes.data, 2, c.data.ptr, 2, one.ctypes.data)
    # The kernel may have failed before its launch returns.
    with contextlib.suppress(cupy.cuda.cublas.CUBLASError):
        cupy.cuda.cublas.dgemm(handle, 0, 0, 2, 2, 2, *scalars, c.data.ptr, 2)
    with refused("hipErrorIllegalAddress"):
        runtime.deviceSynchronize()


def not_there() -> None:
    cublas.nrm2(cupy.ones(3))


if __name__ == "__main__":
    start(globals())
