"""Registered memory with known contents, for the tests of collectives that use it."""

from __future__ import annotations

from typing import Any

from mpistrat.collectives import Communicator
from mpistrat.testing.backends.samples import sample
from mpistrat.types import Array

__all__ = ["COUNTS", "filled", "inputs", "world"]

# Below what is read in place, a bit above, and more than a chunk for each rank.
COUNTS = (5, 3001, (128 << 10) // 8 + 1, 200_003)


def world() -> Any:
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def filled(comm: Communicator, array: Array, **options: Any) -> Array:
    """Return registered memory with the content of `array`."""
    registered = comm.empty(array.shape, array.dtype, **options)
    registered[...] = array
    return registered


def inputs(comm: Communicator, count: int, name: str = "int64") -> list[Array]:
    """Return the arrays of all ranks, `count` elements each."""
    return [sample(name, (count,), rank) for rank in range(comm.size)]
