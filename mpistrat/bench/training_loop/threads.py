"""Limit the threads with which NumPy multiplies matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mpistrat.errors import UsageError

__all__ = ["limited_threads"]


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let each rank's BLAS have `count` threads. **Local.**

    By default it starts one for each core of the machine on each rank, and they wait for each
    other.

    Raises
    ------
    UsageError
        The package that can do so is not installed.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(
            "the threads of NumPy's matrix products cannot be limited: threadpoolctl is not"
            ' installed; run: pip install "mpistrat[bench]"'
        ) from error
    with threadpool_limits(count):
        yield
