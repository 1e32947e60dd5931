"""Memory of the host that all ranks of a node have mapped, pinned for this rank's GPUs.

What a GPU has copied there, the host's collectives read where it is (shared_memory/registered.py),
and what they write there a GPU copies from: nothing is copied on the host in between.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["pinned_region"]

_FOR_ALL_GPUS = 1  # cudaHostRegisterPortable, and HIP's
_MAPS = Path("/proc/self/maps")


def pinned_region(host: Backend, nbytes: int) -> Steps:
    """Return new memory as bytes, or None where there is none, or it cannot be pinned here.

    **Collective.** A rank whose memory cannot be pinned has to do without, the others have theirs.
    """
    try:
        memory: Array = yield from host.allocate(nbytes, is_shared=False)
    except BackendUnavailableError:  # on all ranks
        return None
    return memory if _is_pinned(memory) else None


def _is_pinned(memory: Array) -> bool:
    """Pin memory for as long as an array shows it."""
    address = memory.ctypes.data
    if not _pin(address, memory.nbytes):
        return False
    holder = memory if memory.base is None else memory.base  # goes with the last view
    weakref.finalize(holder, _unpin, address, os.getpid()).atexit = False
    return True


def _pin(address: int, nbytes: int) -> bool:
    import cupy

    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        hip = _hip()
        if hip is None:
            return False
        error = hip.hipHostRegister(address, nbytes, _FOR_ALL_GPUS)
        hip.hipGetLastError()  # forget it, as CuPy does: others would take it for theirs
        return bool(error == 0)
    try:
        runtime.hostRegister(address, nbytes, _FOR_ALL_GPUS)
    except runtime.CUDARuntimeError:
        return False
    return True


def _unpin(address: int, process: int) -> None:
    """Undo it; where the GPU is lost there is nothing left to undo."""
    import cupy

    if os.getpid() != process:  # a forked child, which has no GPU
        return
    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        _hip().hipHostUnregister(address)
        return
    with suppress(runtime.CUDARuntimeError):
        runtime.hostUnregister(address)


@lru_cache(maxsize=1)
def _hip() -> Any:
    """Return HIP's runtime, of which CuPy names neither function, or None."""
    try:
        with _MAPS.open() as maps:
            [path] = {
                line.split(None, 5)[-1].strip() for line in maps if "/libamdhip64.so" in line
            }
        library = ctypes.CDLL(path)
    except (OSError, ValueError):  # no such file any more, or several
        return None
    library.hipHostRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.hipHostUnregister.argtypes = [ctypes.c_void_p]
    return library
