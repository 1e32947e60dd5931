"""Compare the native fast path of a communicator's methods with the path through Python.

Methods take it for plain arrays; :func:`slow` never does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives import Communicator, shutdown
from mpistrat.types import Array

__all__ = [
    "assert_equal",
    "check",
    "drop",
    "fast_calls",
    "open_communicator",
    "read_only",
    "slow",
]


def open_communicator(backend: str = "shm") -> Communicator:
    """Make a communicator of all ranks."""
    return Communicator(None, backend)


def slow(comm: Communicator, *arguments: Any, method: str = "allreduce", **options: Any) -> Any:
    """Call a method the long way."""
    return getattr(Communicator, method).__wrapped__(comm, *arguments, **options)


def fast_calls(comm: Communicator) -> int:
    """Return how many calls took the short way so far."""
    fast = comm.backend.fast
    assert fast is not None
    return fast.fast_calls


def assert_equal(got: Array, want: Array, what: str = "") -> None:
    """Equal type, dtype, shape and bits, and memory of the caller's own."""
    assert type(got) is type(want) is np.ndarray, what
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    assert got.tobytes() == want.tobytes(), f"{what}: {got} is not {want}"
    assert got.flags.c_contiguous, what
    assert got.flags.writeable, what


def check(
    comm: Communicator, *arguments: Any, is_fast: bool, method: str = "allreduce", **options: Any
) -> Any:
    """Compare the two ways, and look which one was taken."""
    before = fast_calls(comm)
    got = getattr(comm, method)(*arguments, **options)
    what = f"{method} {arguments} {options}"
    assert fast_calls(comm) - before == is_fast, what
    want = slow(comm, *arguments, method=method, **options)
    if want is None:
        assert got is None, what
    else:
        assert_equal(got, want, what)
    return got


def read_only(array: Array) -> Array:
    """Forbid to write to `array`, and return it."""
    array.flags.writeable = False
    return array


def drop(comm: Communicator) -> None:
    """Close a broken communicator, and let the job end well all the same."""
    comm.close()
    shutdown.forget(comm)
