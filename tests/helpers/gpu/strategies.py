"""Run one program under strategies on CPUs and on GPUs, and compare what it returns bit for bit.

Everything here is to be used on all ranks of a job alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from mpistrat.collectives.arrays import on_device
from mpistrat.strategy.nest import flatten
from mpistrat.testing.sets import repeats
from mpistrat.types import Array

__all__ = ["PLACES", "Bench", "at_places", "gpus_of", "on_host", "same_on_gpus"]

PLACES: dict[str, Callable[[int], list[int]]] = {
    "shared": lambda rank: [0],
    "own": lambda rank: [rank],
    "two": lambda rank: [2 * rank, 2 * rank + 1],
    "two, shared": lambda rank: [0, 1],
}
"""By name: the GPUs of a rank's replicas."""

_FEW = ("own", "two, shared")
at_places = pytest.mark.parametrize(
    "place", [one if one in _FEW else pytest.param(one, marks=repeats()) for one in PLACES]
)
"""Run a test with a GPU for each rank, and with two that all ranks share; with all in all places.

The other two have nothing more: a GPU that ranks share, and ranks with several GPUs.
"""


class Bench:
    """What a program needs to run on either device.

    Attributes
    ----------
    strategy
        Whose replicas it uses.
    is_on_gpus
        Whether they are on GPUs.
    """

    def __init__(self, strategy: mpistrat.Strategy, is_on_gpus: bool) -> None:
        self.strategy, self.is_on_gpus = strategy, is_on_gpus

    def array(self, value: Any, dtype: Any = None) -> Any:
        """Return an array on the running replica's device, or on the current one."""
        array = np.asarray(value, dtype)
        return on_device.placed(array) if self.is_on_gpus else array

    def sample(self, shape: tuple[int, ...], seed: int, dtype: Any = np.float64) -> Any:
        """Return numbers of which sums are exact in any order, on the device."""
        numbers = np.random.default_rng(seed).integers(-64, 64, shape)
        return self.array(numbers.astype(dtype))

    def replica(self) -> int:
        """Return the number of the replica that runs, among all."""
        found: Any = mpistrat.get_replica_context()
        return int(found.replica_id_in_sync_group)

    def check(self, *values: Any) -> None:
        """Check that arrays of a replica are on its device."""
        context: Any = mpistrat.get_replica_context()
        for value in values:
            place = on_device.index_of(value) if on_device.is_elsewhere(value) else None
            assert place == context.gpu, f"a {type(value)} on {place} in {context}"


def gpus_of(place: str) -> list[str]:
    """Return the devices of this rank's replicas; skip the test where they are not there."""
    from mpi4py import MPI

    gpus = PLACES[place](MPI.COMM_WORLD.rank)
    needs_gpus(max(PLACES[place](MPI.COMM_WORLD.size - 1)) + 1)
    return [f"GPU:{gpu}" for gpu in gpus]


def on_host(value: Any) -> Any:
    """Return the array or number of one leaf on the host."""
    found = on_device.to_host(value)
    return np.asarray(value) if found is None else found


def same_on_gpus(
    place: str,
    program: Callable[[Bench], Any],
    make: Callable[[list[str]], mpistrat.Strategy] = mpistrat.MirroredStrategy,
) -> None:
    """Check that a program returns the same bits, dtypes and shapes on CPUs and on GPUs.

    Parameters
    ----------
    place
        Of `PLACES`.
    program
        Returns a nest of arrays and numbers.
    make
        Makes a strategy of this rank's devices.
    """
    gpus = gpus_of(place)
    found: list[tuple[list[Array], Any]] = []
    for devices in ([f"CPU:{index}" for index in range(len(gpus))], gpus):
        with make(devices) as strategy:
            outcome = program(Bench(strategy, devices is gpus))
            leaves, structure = flatten(outcome)
            found.append(([on_host(leaf) for leaf in leaves], structure))
    (wanted, structure), (got, other) = found
    assert structure == other, (structure, other)
    for index, (one, two) in enumerate(zip(wanted, got, strict=True)):
        what = f"leaf {index} of {structure}: {one!r} on CPUs, {two!r} on GPUs"
        assert (one.dtype, one.shape) == (two.dtype, two.shape), what
        assert one.tobytes() == two.tobytes(), what
