"""Arrays on GPUs: copy them there and back, take in those of other libraries.

It needs CuPy. Arrays of any other library are used where they lie if it can hand them over by
DLPack; without CuPy they come back to the host if it can hand over a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.arrays.gpu_streams import recorded
from mpistrat.errors import ArgumentTypeError
from mpistrat.types import Array

__all__ = [
    "as_gpu_array",
    "contiguous",
    "index_of",
    "is_elsewhere",
    "moved",
    "new",
    "on_one_gpu",
    "placed",
    "plain_bools",
    "to_host",
]

_DEVICE = attrgetter("data.device_id")
_CPU = 1  # DLPack's number for memory of the host
_GPUS = (2, 10, 13)  # for memory of NVIDIA's and AMD's GPUs, and CUDA's managed memory


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


def new(dtype: Any, index: int) -> Any:
    """Return an array of no elements on a GPU.

    Raises
    ------
    BackendUnavailableError
        There is no CuPy, or no GPU.
    """
    gpu_devices.count("an array on a GPU")
    with gpu_devices.on_gpu(index):
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
