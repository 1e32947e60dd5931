"""Launch kernels, each compiled (compiling.py) when it is first used.

A kernel is compiled for one device, dtype and operation in 0.1 to 0.5 s; the machine code is kept
in files, which later processes load in milliseconds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import compiling, source
from mpistrat.types import Array

__all__ = ["THREADS", "blocks_for", "current_device", "kernel", "launch", "pointers"]

THREADS = 256
"""Threads of a block, but for the one-shot all-reduce."""

_BLOCKS_OF_A_PROCESSOR = 8  # of 256 threads each: as many as any GPU holds at once


def current_device() -> int:
    """Return the number of the current device of this thread."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


@cache
def kernel(device: int, name: str, *parameters: str, file: str = "") -> Any:
    """Return a kernel for the device, which must be the current one.

    Parameters
    ----------
    device
        Its number: a kernel is loaded on each device by itself.
    name
        Of the kernel.
    parameters
        Those of its template, in C++.
    file
        Where it is, without the ending; by default in the file of its name.
    """
    import cupy

    vendor = "amd" if cupy.cuda.runtime.is_hip else "nvidia"
    code = source.program(file or name, [(name, *parameters)])
    module = compiling.loaded(code, source.OPTIONS[vendor])
    return module.get_function(source.instance_name(name, *parameters))


@cache
def _opaque(nbytes: int) -> np.dtype[Any]:
    return np.dtype((np.void, nbytes))


@cache
def _processors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])


def blocks_for(device: int, items: int) -> int:
    """Return how many blocks work on so many items: as many as there is work or room for.

    No query of the occupancy, which CuPy does not have on AMD's GPUs.
    """
    return max(1, min(items, _processors(device) * _BLOCKS_OF_A_PROCESSOR))


def launch(function: Any, blocks: int, arguments: Array | bytes, threads: int = THREADS) -> None:
    """Launch a kernel on the current stream. **Local.** Does not wait for it.

    Parameters
    ----------
    function
        What `kernel` returned.
    blocks, threads
        The grid, and the threads of each block.
    arguments
        The kernel's only argument, passed by value: an array of no dimensions and a structured
        dtype, or its bytes.
    """
    content = arguments if isinstance(arguments, bytes) else arguments.tobytes()
    # Without its fields: CuPy has NumPy describe the dtype, which takes 20 us for many fields.
    value = np.frombuffer(content, _opaque(len(content)))
    function((blocks,), (threads,), (value,))


def pointers(addresses: list[int], length: int) -> Array:
    """Return addresses, filled up with zeros."""
    return np.array(addresses + [0] * (length - len(addresses)), np.uint64)
