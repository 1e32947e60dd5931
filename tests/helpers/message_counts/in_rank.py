"""What a program with counted messages does on its ranks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from mpistrat.collectives.backends.mpi_support import symbols
from mpistrat.collectives.checking import deadlock

_LIBRARY = ctypes.CDLL(os.environ["LD_PRELOAD"])


def count_kernels() -> None:
    """Give the kernels the counting functions; without it they call MPI's own."""

    def addresses(mpi: Any) -> list[int]:
        found = (getattr(_LIBRARY, name) for name in symbols._FUNCTIONS)
        return [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in found]

    symbols._addresses = addresses


def never_say_blocked() -> None:
    """Send no notices of long waits, of which a loaded machine has many (deadlock.py)."""
    deadlock.SAY_AFTER_S = 1e6


def begin_phase(name: str) -> None:
    """End the phase under way, and begin another one."""
    _LIBRARY.message_counts_phase(name.encode())


def count(name: str, call: Callable[[], object]) -> None:
    """Count the messages of `call`, which is made once before: first calls may need more."""
    call()
    begin_phase(name)
    call()
    begin_phase("between")
