"""Distributed datasets with one driver: it reads the batches, all ranks count them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.wrapped_strategy.one_driver.driver_value import ValueOnDriver
from mpistrat.tensorflow.wrapped_strategy.one_driver.link import DriverLink, stays_there

__all__ = ["DrivenDataset", "driven_dataset", "own_call"]


def driven_dataset(link: DriverLink, make: Callable[[], Any]) -> DrivenDataset:
    """Return the dataset that `make` makes on the driving rank, for all. **Collective.**"""
    made: list[Any] = []

    def described() -> Any:
        made.append(make())
        return stays_there(made[0].element_spec), _cardinality(made[0])

    return DrivenDataset(link, *link.on_driver("distributing a dataset", described), *made)


def own_call(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments with TensorFlow's own datasets and iterators in place of driven ones.

    What cannot be arguments is left as it is, for the function that refuses it.
    """
    if isinstance(args, list | tuple):
        args = tuple(map(_own, args))
    if isinstance(kwargs, Mapping):
        kwargs = {name: _own(one) for name, one in kwargs.items()}
    return args, kwargs


def _own(value: Any) -> Any:
    is_driven = isinstance(value, DrivenDataset | DrivenIterator)
    return value.own if is_driven and value.own is not None else value


def _cardinality(dataset: Any) -> int:
    found = getattr(dataset, "cardinality", tf.data.UNKNOWN_CARDINALITY)
    return int(found() if callable(found) else found)


class DrivenDataset(tf.distribute.DistributedDataset):  # type: ignore[misc]
    """A distributed dataset of the rank that drives; on all ranks it has as many batches.

    A loop over it in a tf.function has to be called by ``strategy.on_driver``.

    Parameters
    ----------
    link
        Between the ranks.
    batch
        A nest of `ValueOnDriver` that stands for a batch, on a rank that waits.
    cardinality
        Number of batches, or what TensorFlow has for one that is infinite or not known.
    own
        TensorFlow's; None on a rank that waits.
    """

    def __init__(self, link: DriverLink, batch: Any, cardinality: int, own: Any = None) -> None:
        self._link, self._batch, self.own = link, batch, own
        self.cardinality = cardinality

    @property
    def element_spec(self) -> Any:
        """The types of a batch, or of what stands for it."""
        return _specs(self._batch) if self.own is None else self.own.element_spec

    def __iter__(self) -> DrivenIterator:
        """Return an iterator. **Collective.**"""
        own: list[Any] = []
        # Collective, since making it may fail: the others would wait for its first batch without
        # end.
        self._link.on_driver("an iterator over a dataset", lambda: own.append(iter(self.own)))
        return DrivenIterator(self._link, self._batch, *own)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Combine a state with each batch, on the driving rank; loops become this. **Collective.**

        Parameters
        ----------
        initial_state
            A nest of tensors.
        reduce_func
            Called with the state and a batch; returns the next state.
        """
        return self._link.on_driver(
            "a loop over a dataset", lambda: self.own.reduce(initial_state, reduce_func)
        )


class DrivenIterator(tf.distribute.DistributedIterator):  # type: ignore[misc]
    """An iterator over a `DrivenDataset`.

    Parameters
    ----------
    link, batch, own
        As of the dataset.
    """

    def __init__(self, link: DriverLink, batch: Any, own: Any = None) -> None:
        self._link, self._batch, self.own = link, batch, own

    @property
    def element_spec(self) -> Any:
        """The types of a batch, or of what stands for it."""
        return _specs(self._batch) if self.own is None else self.own.element_spec

    def __iter__(self) -> DrivenIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch, or what stands for it. **Collective.**"""
        return self._next(lambda: next(self.own), StopIteration, StopIteration())

    def get_next(self) -> Any:
        """Return the next batch, or what stands for it. **Collective.**

        Raises
        ------
        tf.errors.OutOfRangeError
            On all ranks: there is none.
        """
        end = tf.errors.OutOfRangeError
        return self._next(self._read_next, end, end(None, None, "End of sequence"))

    def _read_next(self) -> Any:
        return self.own.get_next()

    def _next(self, read: Callable[[], Any], end: type[Exception], error: Exception) -> Any:
        if self._link.is_alone:
            return read()
        found: list[Any] = []

        def look() -> bool:
            try:
                found.append(read())
            except end:
                return False
            return True

        # Only whether there is a batch is sent. The batch itself stays on the driving rank.
        if not self._link.on_driver("next batch", look):
            raise error
        return found[0] if found else _copy(self._batch)

    def get_next_as_optional(self) -> Any:
        """Return a tf.experimental.Optional of the next batch. **Collective.**"""
        if self._link.is_alone:
            return self.own.get_next_as_optional()
        found: list[Any] = []

        def look() -> bool:
            found.append(self.own.get_next_as_optional())
            return bool(found[0].has_value())

        has_value = self._link.on_driver("next batch", look)
        return found[0] if found else _Optional(self._batch, has_value)


class _Optional(tf.experimental.Optional):  # type: ignore[misc]
    """What a rank that waits has of one; TensorFlow's holds one tensor at least."""

    def __init__(self, batch: Any, has_value: bool) -> None:
        self._batch, self._has_value = batch, has_value

    def has_value(self, name: str | None = None) -> tf.Tensor:
        return tf.constant(self._has_value, name=name)

    def get_value(self, name: str | None = None) -> Any:
        del name
        if not self._has_value:
            raise tf.errors.InvalidArgumentError(None, None, "The given optional has no value.")
        return _copy(self._batch)

    @property
    def element_spec(self) -> Any:
        return _specs(self._batch)

    @property
    def _type_spec(self) -> Any:
        raise of_both(
            UsageError(
                "a tf.experimental.Optional as an argument of a tf.function, on a rank that waits;"
                " give it the batch, optional.get_value(), or call it by strategy.on_driver"
            )
        )


# Lists and dicts of a batch may be changed by the program, so each batch gets its own.
def _copy(batch: Any) -> Any:
    return tf.nest.map_structure(lambda one: one, batch)


def _specs(batch: Any) -> Any:
    return tf.nest.map_structure(lambda one: ValueOnDriver.Spec(driver=one.driver), batch)
