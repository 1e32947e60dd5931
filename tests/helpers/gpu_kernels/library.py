"""Kernels compiled for the host, and how the checks launch them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gpu.pretend import kernels_on_host
from helpers.gpu_kernels.instances import instances
from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.tables import filled
from mpistrat.types import Array

__all__ = ["Library", "built", "check", "filled_on_host"]


def built(
    family: str,
    mode: kernels_on_host.Mode,
    *,
    are_all: bool = False,
    change: Callable[[str], str] = str,
) -> Path:
    """Compile the kernels of a family for the host; return the library.

    Parameters
    ----------
    family
        A file of kernels/cuda.
    mode
        Which sanitizers watch.
    are_all
        Whether with all operations and dtypes.
    change
        What to do to the text first, to see whether a fault is found.
    """
    text = change(source.program(family, instances(family, are_all=are_all)))
    # The path is part of the key under which a library is kept.
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "mpistrat-pretended-gpu" / "sources" / digest / f"{family}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.replace(path)  # another process may make it too: the same bytes
    return kernels_on_host.build([path], mode)


class Library:
    """A shared object of kernels, whose grids run on threads of this process."""

    def __init__(self, path: Path) -> None:
        self._kernels = kernels_on_host.Kernels(path)

    def run(self, name: str, blocks: int, threads: int, arguments: Array) -> None:
        """Run a kernel to its end; its only argument is a structure."""
        self._kernels.launch(name, blocks, threads, arguments[()])


def check(is_right: bool, what: str) -> None:
    """Raise unless a condition holds."""
    if not is_right:
        raise AssertionError(what)


@contextmanager
def filled_on_host(table: Array, pieces: Array, sizes: Array, chunk: int) -> Iterator[None]:
    """Fill a table in that stays in memory of the host."""

    def upload(content: bytes) -> tuple[int, Any]:
        memory = np.frombuffer(bytearray(content), np.uint64)
        return memory.ctypes.data, memory

    _, memory = filled(table, pieces, sizes, chunk, upload)
    yield
    del memory
