"""Distribute a data set over ranks that are threads, and read its values as plain lists."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
    InputWorkers,
)
from mpistrat.strategy.input.input_context import InputContext, InputOptions
from mpistrat.strategy.values import PerReplica, regroup

__all__ = ["DEADLINE_S", "Ranks", "distribute", "flat", "from_function", "local", "steps"]

DEADLINE_S = 10.0

_Result = TypeVar("_Result")


class Ranks:
    """Ranks as threads, with a real agreement on whether any of them has data.

    Attributes
    ----------
    agreements
        How often the ranks agreed.
    """

    def __init__(self, ranks: int = 1, local: int = 1) -> None:
        self.ranks, self.local = ranks, local
        self.barrier = threading.Barrier(ranks)
        self.flags = [False] * ranks
        self.agreements = 0

    def workers(self, rank: int) -> InputWorkers:
        """Return what a data set knows of a rank's place among all."""

        def any_has_data(flag: bool) -> bool:
            self.flags[rank] = flag
            if self.barrier.wait(DEADLINE_S) == 0:
                self.agreements += 1
            result = any(self.flags)
            self.barrier.wait(DEADLINE_S)
            return result

        return InputWorkers(
            num_replicas=self.ranks * self.local,
            first_replica=rank * self.local,
            num_local=self.local,
            num_pipelines=self.ranks,
            pipeline_id=rank,
            regroup=regroup,
            any_has_data=any_has_data,
        )

    def run(self, body: Callable[[int, InputWorkers], _Result]) -> list[_Result]:
        """Return what ``body(rank, workers)`` returns on each rank."""
        with ThreadPoolExecutor(self.ranks) as pool:
            futures = [pool.submit(body, r, self.workers(r)) for r in range(self.ranks)]
            return [future.result(DEADLINE_S) for future in futures]


def local(value: Any) -> list[Any]:
    """Return a list over the local replicas of a step."""
    values = value.values if isinstance(value, PerReplica) else (value,)
    return [np.asarray(v).tolist() for v in values]


def flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the elements of all lists."""
    return list(itertools.chain.from_iterable(lists))


def steps(distributed: Iterable[Any]) -> list[list[Any]]:
    """Return the local values of each step."""
    return [local(step) for step in distributed]


def distribute(
    data: Any, ranks: int = 1, replicas: int = 1, options: InputOptions | None = None
) -> list[list[Any]]:
    """Return, for each step, the values of all replicas in order; `data` may be made by rank."""

    def body(rank: int, workers: InputWorkers) -> list[list[Any]]:
        own = data(rank) if callable(data) else data
        return steps(DistributedDataset(own, workers, options))

    return _joined(Ranks(ranks, replicas).run(body))


def from_function(
    dataset_fn: Callable[[InputContext], Any],
    ranks: int = 1,
    replicas: int = 1,
    options: InputOptions | None = None,
) -> list[list[Any]]:
    """Return, for each step, the values of all replicas in order."""

    def body(rank: int, workers: InputWorkers) -> list[list[Any]]:
        return steps(DistributedDatasetsFromFunction(dataset_fn, workers, options))

    return _joined(Ranks(ranks, replicas).run(body))


def _joined(results: list[list[list[Any]]]) -> list[list[Any]]:
    assert len({len(result) for result in results}) == 1, "the ranks took unequal steps"
    return [flat(parts) for parts in zip(*results, strict=True)]
