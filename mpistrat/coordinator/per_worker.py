"""`PerWorkerValues`: datasets, iterators and lists with one value for each worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from mpistrat.errors import ContextError, UsageError

if TYPE_CHECKING:
    from mpistrat.coordinator.cluster_coordinator import ClusterCoordinator

__all__ = ["PerWorkerDataset", "PerWorkerIterator", "PerWorkerValues", "Resource", "resources"]

resources: ContextVar[dict[int, Any] | None] = ContextVar("mpistrat_resources", default=None)
"""What the worker that this thread is keeps for the chief, by number."""

_numbers = itertools.count(1)


class PerWorkerValues:
    """A value for each worker: as an argument of ``schedule`` it is that of the worker that runs.

    Parameters
    ----------
    values
        In the order of the workers, one for each.

    References
    ----------
    tf.distribute.experimental.coordinator.PerWorkerValues.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
            raise UsageError(
                f"PerWorkerValues of a {type(values).__name__}; expected a list with a value for"
                " each worker"
            )
        self._values = tuple(values)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the order of the workers."""
        return self._values

    def __repr__(self) -> str:
        return f"PerWorkerValues({list(self._values)!r})"


class Resource:
    """Something that each worker has made, and keeps under one number."""

    def __init__(self, coordinator: ClusterCoordinator) -> None:
        self._coordinator = coordinator
        self.number = next(_numbers)

    def __reduce__(self) -> Any:
        return _found, (self.number,)

    def _make_everywhere(self, make: Callable[[], Any], source: int | None = None) -> None:
        """Let each worker make and keep something, perhaps of what it keeps as `source`."""
        # A function that held `self` would keep it alive, since the chief keeps the functions that
        # it has sent: workers would never be told to drop what they made.
        number = self.number

        def keep() -> None:
            kept = _kept()
            try:
                kept[number] = make()
            except Exception as error:
                before = None if source is None else kept.get(source)  # failed already, perhaps
                new = _Failure(f"{type(error).__name__}: {error}")
                kept[number] = before if isinstance(before, _Failure) else new
                raise

        keep.__qualname__ = type(self).__name__  # what errors call it
        self._coordinator.run_on_all_workers(keep, self)


class PerWorkerDataset(Resource):
    """A dataset on each worker; iterate it on the chief for an iterator on each of them.

    Parameters
    ----------
    coordinator
        Whose workers make it.
    dataset_fn
        Makes it; or a dataset, of which each worker gets a copy.
    """

    def __init__(self, coordinator: ClusterCoordinator, dataset_fn: Any) -> None:
        super().__init__(coordinator)
        self._make_everywhere(dataset_fn if callable(dataset_fn) else lambda: dataset_fn)

    def __iter__(self) -> Iterator[Any]:
        return PerWorkerIterator(self._coordinator, self)


class PerWorkerIterator(Resource, Iterator[Any]):
    """An iterator on each worker, from the start of its dataset."""

    def __init__(self, coordinator: ClusterCoordinator, dataset: PerWorkerDataset) -> None:
        super().__init__(coordinator)
        self._dataset = dataset  # workers have to keep it until they have made the iterator
        source = dataset.number
        self._make_everywhere(lambda: iter(_found(source)), source)

    def __next__(self) -> Any:
        raise ContextError(
            "next() of a per-worker iterator on the chief; pass the iterator to a function:"
            " schedule(fn, args=(iterator,)) runs next(iterator) on a worker"
        )


def _kept() -> dict[int, Any]:
    found = resources.get()
    if found is None:
        raise ContextError("what a worker keeps can only be used in a function that it runs")
    return found


class _Failure(NamedTuple):
    """Why a worker could not make something."""

    text: str


def _found(number: int) -> Any:
    """Return what this worker keeps under a number."""
    found = _kept().get(number, _Failure("it was dropped"))
    if isinstance(found, _Failure):
        raise UsageError(
            f"a per-worker dataset or iterator is missing on this worker ({found.text}); make it"
            " again with create_per_worker_dataset, and iterate that"
        )
    return found
