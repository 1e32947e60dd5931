"""Calls of hipBLAS that CuPy does not make: distances, steps, and wrong arguments."""

import ctypes
from typing import Any

import cupy
import numpy as np
from calls import start

BLAS = ctypes.CDLL("libhipblas.so.3")
NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED, INVALID_ENUM = 1, 3, 7, 10
N, T, C = 111, 112, 113
R_32F, R_64F, COMPUTE_32F, COMPUTE_64F, DEFAULT = 0, 1, 2, 7, 160
ON_HOST, ON_DEVICE = 0, 1
Handle = ctypes.c_void_p


def handle() -> Handle:
    """Return a new handle of the current device."""
    made = Handle()
    assert BLAS.hipblasCreate(ctypes.byref(made)) == 0
    return made


def at(array: cupy.ndarray) -> ctypes.c_void_p:
    """Return the address of an array's first element."""
    return ctypes.c_void_p(
        array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data
    )


def number(value: float) -> Any:
    """Return a double, by reference."""
    return ctypes.byref(ctypes.c_double(value))


def columns_with_gaps() -> None:
    """What lies between the columns of the result is left alone, and nothing else is read."""
    given = np.full((3, 5), np.nan)  # 3 columns, 2 of whose 5 rows count
    given[:, :2] = [[1, 2], [3, 4], [5, 6]]
    a, c = cupy.asarray(given), cupy.full((3, 4), 9.0)
    sizes = (2, 3, 3)
    b = cupy.asarray(np.eye(3))
    one, zero = number(1), number(0)
    assert BLAS.hipblasDgemm(handle(), N, N, *sizes, one, at(a), 5, at(b), 3, zero, at(c), 4) == 0
    assert c.get().tolist() == [[1, 2, 9, 9], [3, 4, 9, 9], [5, 6, 9, 9]]


def alpha_of_zero_reads_nothing() -> None:
    c, nan = cupy.full((2, 2), 5.0), cupy.full((2, 2), np.nan)
    sizes, zero, two = (2, 2, 2), number(0), number(2)
    given = (at(nan), 2, at(nan), 2)
    assert BLAS.hipblasDgemm(handle(), N, N, *sizes, zero, *given, two, at(c), 2) == 0
    assert c.get().tolist() == [[10, 10], [10, 10]]
    sizes = (2, 2, 0)  # nothing is summed
    assert BLAS.hipblasDgemm(handle(), N, N, *sizes, two, *given, zero, at(c), 2) == 0
    assert c.get().tolist() == [[0, 0], [0, 0]]


def steps_of_vectors() -> None:
    """Also negative ones, which begin at a vector's end."""
    a = cupy.asarray(np.arange(6.0).reshape(3, 2))  # by columns: [[0, 2, 4], [1, 3, 5]]
    x, y = cupy.asarray([1.0, 9, 10, 9, 100]), cupy.full(3, 9.0)
    one, zero, h = number(1), number(0), handle()
    assert BLAS.hipblasDgemv(h, N, 2, 3, one, at(a), 2, at(x), 2, zero, at(y), 2) == 0
    assert y.get().tolist() == [420, 9, 531]
    assert BLAS.hipblasDgemv(h, N, 2, 3, one, at(a), 2, at(x), -2, zero, at(y), -2) == 0
    assert y.get().tolist() == [135, 9, 24]
    found = ctypes.c_double()
    assert BLAS.hipblasDdot(h, 3, at(x), -2, at(x), 2, ctypes.byref(found)) == 0
    assert found.value == 300
    m = cupy.zeros((2, 3))
    assert BLAS.hipblasDger(h, 3, 2, one, at(x), -2, at(y), 2, at(m), 3) == 0
    assert m.get().tolist() == [[13500, 1350, 135], [2400, 240, 24]]


def batches_with_distances() -> None:
    """Matrices that lie two apart, and one that belongs to all products."""
    a, b = cupy.asarray(np.arange(16.0).reshape(4, 2, 2)), cupy.asarray([[0.0, 1], [1, 0]])
    c = cupy.zeros((2, 2, 2))
    sizes, one, zero = (2, 2, 2), number(1), number(0)
    step = ctypes.c_longlong
    arguments = (at(a), 2, step(8), at(b), 2, step(0), zero, at(c), 2, step(4), 2)
    assert BLAS.hipblasDgemmStridedBatched(handle(), N, N, *sizes, one, *arguments) == 0
    assert c.get().tolist() == [[[2, 3], [0, 1]], [[10, 11], [8, 9]]]


def scalars_on_the_device() -> None:
    """They are read when the product is computed, not when it is called."""
    h, stream = handle(), cupy.cuda.Stream(non_blocking=True)
    mode = ctypes.c_int()
    assert BLAS.hipblasSetPointerMode(h, ON_DEVICE) == 0
    assert BLAS.hipblasGetPointerMode(h, ctypes.byref(mode)) == 0
    assert mode.value == ON_DEVICE
    assert BLAS.hipblasSetStream(h, ctypes.c_void_p(stream.ptr)) == 0
    found = Handle()
    assert BLAS.hipblasGetStream(h, ctypes.byref(found)) == 0
    assert found.value == stream.ptr
    alpha, a, c = cupy.zeros(()), cupy.ones(1), cupy.full(1, 5.0)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        alpha.fill(7)
        arguments = (at(a), 1, at(a), 1, at(alpha), at(c), 1)
        assert BLAS.hipblasDgemm(h, T, C, 1, 1, 1, at(alpha), *arguments) == 0
        alpha.fill(0)
        assert c.get().tolist() == [42]
    assert BLAS.hipblasDestroy(h) == 0


def wrong_arguments() -> None:
    """Each is refused before anything is queued."""
    h, a, one = handle(), cupy.ones((2, 2)), number(1)
    rest = (at(a), 2, one, at(a), 2)

    def gemm(h: Any, op: int, *sizes: int, lda: int = 2, alpha: Any = one) -> int:
        return int(BLAS.hipblasDgemm(h, op, N, *sizes, alpha, at(a), lda, *rest))

    assert gemm(None, N, 2, 2, 2) == NOT_INITIALIZED
    assert gemm(h, 0, 2, 2, 2) == INVALID_ENUM
    assert gemm(h, N, -1, 2, 2) == INVALID_VALUE
    assert gemm(h, N, 2, 2, 2, lda=1) == INVALID_VALUE
    assert gemm(h, T, 2, 2, 3) == INVALID_VALUE
    assert gemm(h, N, 2, 2, 2, alpha=None) == INVALID_VALUE
    assert gemm(h, N, 0, 2, 2, alpha=None) == 0  # nothing to do
    assert BLAS.hipblasSetPointerMode(h, 5) == INVALID_ENUM
    assert BLAS.hipblasDgemv(h, N, 2, 2, one, at(a), 2, at(a), 0, one, at(a), 1) == INVALID_VALUE
    assert BLAS.hipblasDdot(h, 2, at(a), 1, at(a), 1, None) == INVALID_VALUE
    assert BLAS.hipblasDestroy(None) == NOT_INITIALIZED

    def gemm_ex(types: tuple[int, int, int], compute: int, algorithm: int = DEFAULT) -> int:
        first, second, third = types
        given = (at(a), first, 2, at(a), second, 2, one, at(a), third, 2, compute, algorithm)
        return int(BLAS.hipblasGemmEx(h, N, N, 2, 2, 2, one, *given))

    assert gemm_ex((R_64F, R_64F, R_64F), COMPUTE_32F) == NOT_SUPPORTED
    assert gemm_ex((R_32F, R_32F, R_64F), COMPUTE_32F) == NOT_SUPPORTED
    assert gemm_ex((R_64F, R_64F, R_64F), COMPUTE_64F, 0) == NOT_SUPPORTED
    assert a.get().tolist() == [[1, 1], [1, 1]]
    assert gemm_ex((R_64F, R_64F, R_64F), COMPUTE_64F) == 0
    assert a.get().tolist() != [[1, 1], [1, 1]]


if __name__ == "__main__":
    start(globals())
