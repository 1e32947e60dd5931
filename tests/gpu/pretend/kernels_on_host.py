"""Build kernels for the CPU and launch them on NumPy arrays, with no CuPy and no runtime.

A kernel source (CUDA C++ in the part of the language that HIP has too) is compiled by g++ behind
language/prelude.h, and its threads are run by threads/. Three modes:

- ``plain``: as it is;
- ``address``: under AddressSanitizer and UndefinedBehaviorSanitizer;
- ``thread``: under ThreadSanitizer, to which each CUDA thread is a thread of its own, so that a
  missing ``__syncthreads`` or a flag without release is a data race that it reports.

The sanitizers' libraries must be in the process before Python is: start another one with
``environment(mode)``. In that process (or in any, for ``plain``)::

    kernels = Kernels(build([Path("add.cu")], "plain"))
    kernels.launch("add", 4, 128, array, array.size)
"""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from gpu.pretend.on_host.building import Mode, build, environment, why_not

__all__ = ["Kernels", "Mode", "build", "environment", "why_not"]

Size = int | tuple[int, int] | tuple[int, int, int]


class Kernels:
    """Kernels of a library that ``build`` made."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._run = self._library.pretend_run_grid

    def launch(
        self, name: str, grid: Size, block: Size, *arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Run a kernel to its end; other Python threads go on meanwhile.

        Parameters
        ----------
        name
            Of the kernel.
        grid, block
            Blocks of the grid and threads of a block: a number, or up to three.
        arguments
            One for each parameter: an array stands for its address; int and float take the
            parameter's size; NumPy scalars and ctypes values must have it.
        shared_bytes
            Dynamic shared memory of a block.

        Raises
        ------
        TypeError
            The arguments do not fit the kernel's parameters.
        ValueError
            No GPU takes a grid or block of that size.
        """
        sizes = self._sizes(name)
        if len(sizes) != len(arguments):
            message = f"kernel {name} takes {len(sizes)} arguments, got {len(arguments)}"
            raise TypeError(message)
        held = [
            _bytes(f"argument {i} of kernel {name}", argument, size)
            for i, (argument, size) in enumerate(zip(arguments, sizes, strict=True))
        ]
        addresses = (ctypes.c_void_p * len(held))(*[ctypes.addressof(value) for value in held])
        entry = ctypes.cast(self._library[f"pretend_entry_{name}"], ctypes.c_void_p)
        shape = (ctypes.c_uint * 6)(*_three(grid), *_three(block))
        if self._run(entry, shape, ctypes.c_size_t(shared_bytes), addresses) != 0:
            message = f"no GPU runs a grid of {grid} blocks of {block} threads"
            raise ValueError(message)

    def _sizes(self, name: str) -> list[int]:
        try:
            function = self._library[f"pretend_argument_sizes_{name}"]
        except AttributeError:
            message = f"there is no kernel {name} in {self._library._name}"
            raise TypeError(message) from None
        function.restype = ctypes.POINTER(ctypes.c_size_t)
        sizes = function()
        result: list[int] = []
        while sizes[len(result)]:
            result.append(sizes[len(result)])
        return result


def _three(size: Size) -> tuple[int, ...]:
    given = (size,) if isinstance(size, int) else tuple(size)
    return (*given, 1, 1)[:3]


def _bytes(what: str, argument: Any, size: int) -> ctypes.Array[ctypes.c_char]:
    """Return a copy of what the kernel gets for an argument."""
    if isinstance(argument, np.ndarray):
        raw = argument.ctypes.data.to_bytes(8, "little")
    elif isinstance(argument, (bool, int)):
        raw = argument.to_bytes(size, "little", signed=argument < 0)
    elif isinstance(argument, float):
        raw = np.dtype(f"f{size}").type(argument).tobytes()
    elif isinstance(argument, np.generic):
        raw = argument.tobytes()
    else:
        raw = bytes(argument)
    if len(raw) != size:
        message = f"{what}: {argument!r} has {len(raw)} bytes, expected {size}"
        raise TypeError(message)
    return ctypes.create_string_buffer(raw, size)
