"""Arrays on GPUs: list the GPUs, copy arrays to them and back to the host.

Values are summed and sent from the host: what is here carries them there and back. Placing needs
CuPy; arrays of any library come back that can hand over a copy by DLPack.

Notes
-----
None of it has run on a GPU so far. `tests/gpu` has what to run where there is one; elsewhere tests
put arrays of the host in the place of a GPU's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["gpu_index", "is_elsewhere", "on_gpu", "placed", "require", "to_host"]

_CPU = 1  # DLPack's number for memory of the host


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
            f"{what}: arrays on GPUs need CuPy ({error}); install cupy-cuda12x, or use CPU devices"
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


def _cupy() -> Any:
    import cupy

    return cupy
