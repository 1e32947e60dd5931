"""Methods of `Strategy` that TensorFlow keeps for programs written for its older versions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
    make_numpy_dataset,
)
from mpistrat.strategy.input.input_context import (
    InputContext,
    InputOptions,
    InputReplicationMode,
)
from mpistrat.strategy.input.iterator import InputIterator
from mpistrat.types import Nest

__all__ = ["OlderMembers"]


class _Strategy(Protocol):
    """What these methods call."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Nest:
        """See `Strategy`."""
        ...

    def experimental_distribute_dataset(self, dataset: Any) -> DistributedDataset:
        """See `Strategy`."""
        ...

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
    ) -> DistributedDatasetsFromFunction:
        """See `Strategy`."""
        ...


class OlderMembers:
    """A base of `Strategy`."""

    def experimental_run_v2(
        self: _Strategy,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Nest:
        """Call :meth:`run`; its name in TensorFlow 2.0."""
        return self.run(fn, args, kwargs)

    def experimental_run(
        self: _Strategy, fn: Callable[..., Any], input_iterator: Any = None
    ) -> Nest:
        """Do :meth:`run` on the next input of `input_iterator`, or without input."""
        if input_iterator is None:
            return self.run(fn)
        return self.run(fn, args=(input_iterator.get_next(),))

    def experimental_distribute_datasets_from_function(
        self: _Strategy,
        dataset_fn: Callable[[InputContext], Any],
        options: InputOptions | None = None,
    ) -> DistributedDatasetsFromFunction:
        """Call :meth:`distribute_datasets_from_function`; its older name."""
        return self.distribute_datasets_from_function(dataset_fn, options)

    def make_dataset_iterator(self: _Strategy, dataset: Any) -> InputIterator:
        """Return an iterator with ``initialize()`` and ``get_next()`` over global batches."""
        return InputIterator(self.experimental_distribute_dataset(dataset))

    def make_input_fn_iterator(
        self: _Strategy,
        input_fn: Callable[[InputContext], Any],
        replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER,
    ) -> InputIterator:
        """Return such an iterator over the datasets that `input_fn` makes."""
        options = InputOptions(experimental_replication_mode=replication_mode)
        return InputIterator(self.distribute_datasets_from_function(input_fn, options))

    def experimental_make_numpy_dataset(self, numpy_input: Nest, session: Any = None) -> Any:
        """Return a `mpistrat.data.Dataset` of the rows of a nest of arrays. **Local.**"""
        del session
        return make_numpy_dataset(numpy_input)

    def update_config_proto(self, config_proto: Any) -> Any:
        """Return a copy of `config_proto`; nothing in it needs to change here. **Local.**"""
        return copy.deepcopy(config_proto)

    def experimental_initialize(self) -> list[Any]:
        """Return the operations to run first: none. **Local.**"""
        return []

    def experimental_finalize(self) -> list[Any]:
        """Return the operations to run last: none. **Local.**"""
        return []
