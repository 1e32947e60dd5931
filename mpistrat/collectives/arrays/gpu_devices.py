"""The GPUs of this rank, by CuPy: which there are, which one is current, their memory."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from mpistrat.collectives.arrays.cupy_installation import (
    chosen_gpus,
    several,
    why_no_cupy,
    why_no_gpu,
)
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once

__all__ = [
    "count",
    "current",
    "gpu_index",
    "make_current",
    "memory_bytes",
    "memory_problem",
    "on_gpu",
    "require",
    "visible_buses",
    "why_not",
]

_LOG = get_logger(__name__)

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
    seen = count(f"devices={list(devices)}")
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


def count(what: str = "arrays on GPUs") -> int:
    """Return how many GPUs this rank can see, at least one. **Local.**

    Parameters
    ----------
    what
        What needs one, for the error.

    Raises
    ------
    BackendUnavailableError
        There is no CuPy, or no GPU.
    """
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


def current() -> int | None:
    """Return the GPU that is this thread's current one; None in programs that do not use CuPy."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None or not cupy.is_available() else int(cupy.cuda.Device().id)


def on_gpu(index: int) -> AbstractContextManager[Any]:
    """Return what makes a GPU the current one of this thread in a ``with`` block."""
    device: AbstractContextManager[Any] = _cupy().cuda.Device(index)
    return device


def make_current(index: int) -> None:
    """Make a GPU the current one of this thread, from now on."""
    _cupy().cuda.Device(index).use()


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


def _cupy() -> Any:
    import cupy

    return cupy
