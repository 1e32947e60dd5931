"""Arrays on GPUs: list the GPUs, copy arrays to them and back, take in those of other libraries.

It needs CuPy. Arrays of any other library are used where they lie if it can hand them over by
DLPack; without CuPy they come back to the host if it can hand over a copy.

Notes
-----
None of it has run on a GPU so far, but on the runtime that stands in for one (tests/gpu/pretend).
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np

from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = [
    "as_gpu_array",
    "current",
    "gpu_index",
    "index_of",
    "is_elsewhere",
    "new",
    "on_gpu",
    "placed",
    "plain_bools",
    "require",
    "run_on",
    "to_host",
]

_CPU = 1  # DLPack's number for memory of the host
_GPUS = (2, 10)  # for memory of NVIDIA's and AMD's GPUs


def gpu_index(device: str) -> int | None:
    """Return which GPU of this rank a device string names; None if it is no GPU."""
    kind, index = device.rsplit("/", 1)[-1].removeprefix("device:").split(":")
    return int(index) if kind.upper() == "GPU" else None


def require(devices: Iterable[str]) -> None:
    """Raise unless the GPUs among `devices` are there, and CuPy to use them. **Local.**

    Raises
    ------
    BackendUnavailableError
        CuPy is not installed or finds no such GPU.
    """
    wanted = [index for index in map(gpu_index, devices) if index is not None]
    if not wanted:
        return
    count = _count(f"devices={list(devices)}")
    if max(wanted) >= count:
        raise BackendUnavailableError(
            f"devices={list(devices)}: this rank can see {count} GPUs; expected GPU:0 to"
            f" GPU:{count - 1}, or CPU devices"
        )


def _count(what: str) -> int:
    """Return how many GPUs CuPy finds, at least one."""
    try:
        cupy = _cupy()
    except ImportError as error:
        raise BackendUnavailableError(
            f"{what}: arrays on GPUs need CuPy ({error}); install mpistrat[cuda] or"
            " mpistrat[rocm], or use CPU devices"
        ) from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(
            f"{what}: CuPy finds no GPU ({error}); use CPU devices, or look at nvidia-smi and"
            " CUDA_VISIBLE_DEVICES"
        ) from error
    if not count:
        raise BackendUnavailableError(f"{what}: this rank can see no GPU; use CPU devices")
    return count


def on_gpu(index: int) -> AbstractContextManager[Any]:
    """Return what makes a GPU the current one of this thread in a ``with`` block."""
    device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
    return device


def placed(array: Any) -> Any:
    """Return a copy of a host array on the current GPU; an array that is there, as it is."""
    return _cupy().asarray(array)


def current() -> int | None:
    """Return the GPU that is this thread's current one; None in programs that do not use CuPy."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None or not cupy.is_available() else int(cupy.cuda.Device().id)


def new(dtype: Any, index: int) -> Any:
    """Return an array of no elements on a GPU.

    Raises
    ------
    BackendUnavailableError
        There is no CuPy, or no GPU.
    """
    _count("an array on a GPU")
    with on_gpu(index):
        return _cupy().empty(0, dtype)


def is_elsewhere(value: Any) -> bool:
    """Tell whether `value` is an array on a device, and not in memory of the host."""
    find = getattr(value, "__dlpack_device__", None)
    return find is not None and find()[0] != _CPU


def to_host(value: Any) -> Array | None:
    """Return a copy in host memory of an array on a device; None if `value` is no such array.

    Parameters
    ----------
    value
        An array of CuPy, or of another library whose ``__dlpack__`` copies to the host.
    """
    if not is_elsewhere(value):
        return None
    if type(value).__module__.partition(".")[0] == "cupy":
        mine: Array = value.get()  # waits for what the current stream has to do for it
        return mine
    try:
        return np.from_dlpack(value, device="cpu")
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None  # a library that cannot: who asked tries another way, or says so


def as_gpu_array(value: Any) -> Any:
    """Return an array of CuPy that shares its memory with `value`; None if it is on no GPU.

    Parameters
    ----------
    value
        An array of CuPy, or of a library that hands it over by DLPack (torch, JAX, TensorFlow).
    """
    find = getattr(value, "__dlpack_device__", None)
    if find is None or find()[0] not in _GPUS or not _has_cupy():
        return None
    cupy = _cupy()
    return value if isinstance(value, cupy.ndarray) else cupy.from_dlpack(value)


def plain_bools(array: Any) -> Any:
    """Return bools on a GPU as bytes of 0 and 1: a view of other memory may hold any."""
    with array.device:
        return array.view(np.uint8) != 0


def index_of(array: Any) -> int:
    """Return which GPU of this rank an array of CuPy is on."""
    return int(array.device.id)


def run_on(index: int, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    """Return `steps`, run with the GPU as the current one and on the stream that is current now.

    Each step may be run by another thread, which has a current GPU and stream of its own.
    """
    cupy = _cupy()
    with cupy.cuda.Device(index):
        stream = cupy.cuda.get_current_stream()
    return _run_on(cupy.cuda.Device(index), stream, steps)


def _run_on(
    device: Any, stream: Any, steps: Generator[Any, None, Any]
) -> Generator[Any, None, Any]:
    while True:
        try:
            with device, stream:
                request = next(steps)
        except StopIteration as stop:
            return stop.value
        yield request


@lru_cache(maxsize=1)
def _has_cupy() -> bool:
    try:
        _cupy()
    except ImportError:
        return False
    return True


def _cupy() -> Any:
    import cupy

    return cupy
