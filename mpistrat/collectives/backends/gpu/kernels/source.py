"""The text and the names of the kernels in kernels/cuda, for a compiler at run time.

CuPy's cache of compiled kernels knows the text that it was given, and not the files that this
includes. So the headers are pasted into one text. Instances of templates follow it, each with a
name of C: on AMD's GPUs CuPy compiles anew in every process what has names of C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.errors import BackendUnavailableError, UsageError

__all__ = ["OPTIONS", "folder", "instance_name", "op_name", "program", "text", "type_name"]

OPTIONS = {
    "nvidia": ("--std=c++17", "--fmad=false"),
    "amd": ("-std=c++17", "-ffp-contract=off"),
}
"""Options of each vendor's compiler: no fused multiply-adds, which the CPU side has not either."""

_INCLUDE = re.compile(r'#include "(\w+\.cuh)"')
_TYPES = {
    "bool": "mpistrat::Bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "mpistrat::Half",
    "bfloat16": "mpistrat::Bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "mpistrat::Complex<float>",
    "complex128": "mpistrat::Complex<double>",
}


def folder() -> Path:
    """Return where the sources are: in the package if it was installed, beside it in a checkout.

    Raises
    ------
    BackendUnavailableError
        They are in neither.
    """
    package = Path(config.__file__).parent
    places = [parent / "kernels" / "cuda" for parent in (package, package.parent)]
    for place in places:
        if place.is_dir():
            return place
    raise BackendUnavailableError(
        f"found no sources of the GPU kernels in {' or '.join(map(str, places))}; install mpistrat"
        " again"
    )


@cache
def text(name: str) -> str:
    """Return the file `name`.cu with all headers in place of their first #include."""
    return _pasted(f"{name}.cu", set())


def _pasted(name: str, seen: set[str]) -> str:
    seen.add(name)
    lines = []
    for line in (folder() / name).read_text(encoding="utf-8").splitlines():
        include = _INCLUDE.match(line)
        if include is None:
            lines.append("" if line == "#pragma once" else line)
        elif include[1] not in seen:
            lines.append(_pasted(include[1], seen))
    return "\n".join(lines)


def program(file: str, instances: Iterable[tuple[str, ...]]) -> str:
    """Return the text of a file and of kernels from it.

    Parameters
    ----------
    file
        Without the ending.
    instances
        The name of each kernel, followed by the parameters of its template, in C++.
    """
    asked = []
    for kernel, *parameters in instances:
        code = f"mpistrat::{kernel}" + (f"<{', '.join(parameters)}>" if parameters else "")
        asked.append(f"MPISTRAT_INSTANCE({instance_name(kernel, *parameters)}, {code})")
    return "\n".join([text(file), *asked, ""])


def instance_name(kernel: str, *parameters: str) -> str:
    """Return the C name of a kernel: its own and those of its template's parameters."""
    words = [re.sub(r"\W+", "_", one.replace("mpistrat::", "")) for one in parameters]
    return "_".join(["mpistrat", kernel, *words]).rstrip("_")


@lru_cache(maxsize=64)  # NumPy makes up the name of a dtype anew each time, in 2 us
def type_name(dtype: np.dtype[Any]) -> str:
    """Return the C++ name of a dtype."""
    try:
        return _TYPES[dtype.name]
    except KeyError:
        raise UsageError(
            f"no GPU kernel works on dtype {dtype}; expected one of {', '.join(_TYPES)}"
        ) from None


def op_name(op: str) -> str:
    """Return the C++ name of a reduction."""
    return f"mpistrat::{op.capitalize()}"
