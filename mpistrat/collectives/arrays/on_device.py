"""Arrays on GPUs: list the GPUs, copy arrays to them and back, take in those of other libraries.

It needs CuPy. Arrays of any other library are used where they lie if it can hand them over by
DLPack; without CuPy they come back to the host if it can hand over a copy.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.cupy_installation import (
    chosen_gpus,
    several,
    why_no_cupy,
    why_no_gpu,
)
from mpistrat.collectives.arrays.gpu_streams import recorded
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.types import Array

__all__ = [
    "as_gpu_array",
    "contiguous",
    "count",
    "current",
    "gpu_index",
    "index_of",
    "is_elsewhere",
    "make_current",
    "memory_bytes",
    "memory_problem",
    "moved",
    "new",
    "on_gpu",
    "on_one_gpu",
    "placed",
    "plain_bools",
    "require",
    "to_host",
    "visible_buses",
    "why_not",
]

_LOG = get_logger(__name__)

_DEVICE = attrgetter("data.device_id")
_CPU = 1  # DLPack's number for memory of the host
_GPUS = (2, 10, 13)  # for memory of NVIDIA's and AMD's GPUs, and CUDA's managed memory
_NO_DEVICE = 100  # of CUDA and of HIP
_OUT_OF_MEMORY = 2  # of CUDA and of HIP


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
    seen = _count(f"devices={list(devices)}")
    if max(wanted) >= seen:
        raise BackendUnavailableError(
            f"devices={list(devices)}: this rank can see {seen} GPUs; expected GPU:0 to"
            f" GPU:{seen - 1}, or CPU devices"
        )


def why_not(index: int) -> str | None:
    """Return why this rank has no such GPU, or None. **Local.**"""
    try:
        require([f"GPU:{index}"])
    except BackendUnavailableError as error:
        return str(error)
    return None


def count() -> int:
    """Return how many GPUs this rank can see, at least one. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is no CuPy, or no GPU.
    """
    return _count("arrays on GPUs")


def _count(what: str) -> int:
    """Return how many GPUs CuPy finds, at least one."""
    try:
        cupy = _cupy()
    except ImportError as error:
        raise BackendUnavailableError(f"{what}: {why_no_cupy(error)}") from error
    warning = several()
    if warning is not None:
        warn_once(_LOG, "several CuPy", warning)
    try:
        found = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(f"{what}: {why_no_gpu(error)}") from error
    if not found:
        raise BackendUnavailableError(f"{what}: this rank can see no GPU; use CPU devices")
    return found


def on_gpu(index: int) -> AbstractContextManager[Any]:
    """Return what makes a GPU the current one of this thread in a ``with`` block."""
    device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
    return device


def make_current(index: int) -> None:
    """Make a GPU the current one of this thread, from now on."""
    _cupy().cuda.Device(index).use()


def placed(array: Any) -> Any:
    """Return an array on the current GPU: itself if it is there, else a copy."""
    there = as_gpu_array(array)
    if there is None:
        return _cupy().asarray(array)
    here = int(_cupy().cuda.Device().id)
    return there if index_of(there) == here else moved(there, here)


def contiguous(array: Any) -> Any:
    """Return an array of CuPy in C order: itself, or a copy on its GPU, the current one."""
    return array if array.flags.c_contiguous else array.copy(order="C")


def moved(array: Any, index: int) -> Any:
    """Return a copy of an array of CuPy on another GPU, in order of both GPUs' current streams.

    The GPUs need not be able to read each other's memory.
    """
    cupy = _cupy()
    with array.device as source_device:
        source, source_stream = contiguous(array), cupy.cuda.get_current_stream()
        written = recorded(cupy, source_stream)
    with cupy.cuda.Device(index):
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(written)
        copy = cupy.empty(source.shape, source.dtype)
        if source.nbytes:
            places = (copy.data.ptr, index, source.data.ptr, source_device.id)
            cupy.cuda.runtime.memcpyPeerAsync(*places, source.nbytes, stream.ptr)
        read = recorded(cupy, stream)
    with array.device:
        source_stream.wait_event(read)  # the memory may be used again after that
    return copy


def current() -> int | None:
    """Return the GPU that is this thread's current one; None in programs that do not use CuPy."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None or not cupy.is_available() else int(cupy.cuda.Device().id)


def visible_buses() -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that this rank can see, by index. **Local.**

    There are none where CuPy is not installed or finds no GPU. A CuPy or a driver that cannot be
    used is logged as a warning, as is a choice of GPUs (CUDA_VISIBLE_DEVICES) that are not there.
    """
    if importlib.util.find_spec("cupy") is None:
        return ()
    try:
        runtime = _cupy().cuda.runtime
    except ImportError as error:
        warn_once(_LOG, "no GPUs", f"replicas run on CPUs: {why_no_cupy(error)}")
        return ()
    try:
        return tuple(map(runtime.deviceGetPCIBusId, range(runtime.getDeviceCount())))
    except runtime.CUDARuntimeError as error:
        is_as_usual = error.status == _NO_DEVICE and chosen_gpus() is None
        level = "INFO" if is_as_usual else "WARNING"
        warn_once(_LOG, "no GPUs", f"replicas run on CPUs: {why_no_gpu(error)}", level)
        return ()


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


def memory_bytes() -> int:
    """Return how much memory the current GPU has, free or not."""
    return int(_cupy().cuda.runtime.memGetInfo()[1])


def memory_problem(error: BaseException) -> str | None:
    """Return what an error says about the current GPU's memory; None if it is another error."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return None
    runtime = cupy.cuda.runtime
    is_memory = isinstance(error, cupy.cuda.memory.OutOfMemoryError) or (
        isinstance(error, runtime.CUDARuntimeError) and error.status == _OUT_OF_MEMORY
    )
    if not is_memory:
        return None
    free, total = runtime.memGetInfo()
    place = f"GPU:{runtime.getDevice()}"
    return (
        f"{place} is out of memory, {free} of its {total} bytes are free: {error}; free some, pass"
        " out=, or reduce what else is on it"
    )


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

    Raises
    ------
    ArgumentTypeError
        Its library refuses that, or CuPy cannot take it.
    """
    if type(value) is getattr(sys.modules.get("cupy"), "ndarray", None):
        return value
    find = getattr(value, "__dlpack_device__", None)
    if find is None or find()[0] not in _GPUS or not _has_cupy():
        return None
    cupy = _cupy()
    if isinstance(value, cupy.ndarray):
        return value
    try:
        return cupy.from_dlpack(value)
    except Exception as error:
        raise ArgumentTypeError(
            f"a {type(value).__name__} on a GPU cannot be handed over by DLPack: {error}; pass"
            " an array of CuPy, of a GPU that CuPy can see, or one that its library can hand over"
        ) from error


def plain_bools(array: Any) -> Any:
    """Return bools on a GPU as bytes of 0 and 1: a view of other memory may hold any."""
    with array.device:
        return array.view(np.uint8) != 0


def index_of(array: Any) -> int:
    """Return which GPU of this rank an array of CuPy is on."""
    return int(array.device.id)


def on_one_gpu(values: Sequence[Any]) -> int | None:
    """Return which GPU of this rank all values are on, if all are arrays of CuPy; else None."""
    array = getattr(sys.modules.get("cupy"), "ndarray", None)
    if not values or type(values[0]) is not array:
        return None
    if set(map(type, values)) != {array}:
        return None
    indices = set(map(_DEVICE, values))
    return int(indices.pop()) if len(indices) == 1 else None


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
