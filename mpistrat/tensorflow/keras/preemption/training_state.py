"""The state of a `fit` in a checkpoint: variables, random generators, the epoch and the batch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from mpistrat.checkpoint.objects.saveable import Part
from mpistrat.collectives import Communicator
from mpistrat.tensorflow.private import eager
from mpistrat.types import Array

__all__ = ["TrainingState", "global_seed"]

_NUMBERS = ("epoch", "batch", "first_epoch", "epochs_done", "seed")
_NUMPY_WORDS = 624  # of its generator, before two numbers more


class TrainingState:
    """What a stopped `fit` needs to go on with the same bits.

    Weights, statistics and what the optimizer keeps are the same on all replicas, and saved once.
    Saved for each replica are integers, such as the states of Keras's random generators, and
    metrics; and for each rank the states that Python's and NumPy's generators had when the epoch
    began.

    Parameters
    ----------
    model
        Built and compiled.
    strategy
        The model's.
    communicator
        Of its ranks.

    Attributes
    ----------
    epoch, batch
        The epoch that is under way, and how many of its batches are done.
    first_epoch
        The epoch that the `fit` began with.
    seed
        TensorFlow's global seed; -1 if it has none.
    epochs_done
        The argument ``epochs`` of the `fit` that has come to its end; 0 if none has.
    """

    def __init__(self, model: Any, strategy: Any, communicator: Communicator) -> None:
        self._model, self._strategy, self._communicator = model, strategy, communicator
        # By which a checkpoint finds the ranks that save together.
        self.distribute_strategy = SimpleNamespace(
            extended=SimpleNamespace(communicator=communicator)
        )
        self.epoch = self.batch = self.first_epoch = self.epochs_done = 0
        self.seed = global_seed()
        self._metrics: dict[int, Array] = {}  # restored, or kept
        self._keeps_metrics = False
        self._generators = _generator_states()

    # -------------------------------------------------------------------------------- a epoch

    def begin_epoch(self, epoch: int) -> None:
        """Note that an epoch begins, and the states of the generators."""
        self.epoch, self.batch = epoch, 0
        self._generators = _generator_states()

    def begin_validation(self) -> None:
        """Keep the epoch's metrics, which the validation counts in, too."""
        variables = enumerate(self._metric_variables())
        self._metrics = {index: _rows(self._local(variable)) for index, variable in variables}
        self._keeps_metrics = True

    def end_validation(self) -> None:
        """Keep the metrics no more."""
        self._keeps_metrics = False

    def begin_resumed(self) -> None:
        """Give metrics and generators what they had when the epoch was stopped, and it began."""
        for index, values in self._metrics.items():
            for own, value in zip(
                self._local(self._metric_variables()[index]), values, strict=True
            ):
                own.assign(value)
        _set_generators(self._generators)

    # ----------------------------------------------------------------------- for a checkpoint

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers. **Local.**"""
        return {name: getattr(self, name) for name in _NUMBERS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the numbers. **Local.**"""
        for name, value in state.items():
            setattr(self, name, value)

    def checkpoint_parts(self) -> Sequence[Part]:
        """Return the tensors that this rank holds. **Local.**"""
        return [*self._variable_parts(), *self._metric_parts(), *self._generator_parts()]

    def _variable_parts(self) -> Iterator[Part]:
        found = [*self._model.variables, *self._model.optimizer.variables]
        unique = {id(variable): variable for variable in found}
        for index, variable in enumerate(unique.values()):
            local = self._local(variable)
            dtype = local[0].dtype.as_numpy_dtype
            name = f"variables/{index:05d}"
            if np.issubdtype(dtype, np.integer) and not variable.trainable:
                yield self._by_replica(name, local, _assign_to(local))
            else:
                yield _once(name, local)

    def _metric_parts(self) -> Iterator[Part]:
        for index, variable in enumerate(self._metric_variables()):
            local = self._local(variable)

            def keep(values: Array, index: int = index) -> None:
                self._metrics[index] = values

            kept = self._metrics[index] if self._keeps_metrics else None
            yield self._by_replica(f"metrics/{index:05d}", local, keep, kept)

    def _generator_parts(self) -> Iterator[Part]:
        rank, size = self._communicator.rank, self._communicator.size
        for name, value in self._generators.items():

            def write(rows: Array, name: str = name) -> None:
                self._generators[name] = rows[0]

            def read(value: Array = value) -> Array:
                return value[None]

            shape = (size, *value.shape)
            yield Part(
                f"generators-of-{size}/{name}", shape, value.dtype, read, write, (rank, rank + 1)
            )

    def _by_replica(
        self,
        name: str,
        local: Sequence[Any],
        write: Callable[[Array], Any],
        kept: Array | None = None,
    ) -> Part:
        """Return a row for each replica; another number of them has parts of other names."""
        count, first = len(local), len(local) * self._communicator.rank
        total = count * self._communicator.size
        shape = (total, *local[0].shape.as_list())

        def read() -> Array:
            return _rows(local) if kept is None else kept

        dtype = np.dtype(local[0].dtype.as_numpy_dtype)
        return Part(f"{name}-of-{total}", shape, dtype, read, write, (first, first + count))

    def _metric_variables(self) -> list[Any]:
        found: list[Any] = self._model.metrics_variables
        return found

    def _local(self, variable: Any) -> Sequence[Any]:
        """Return TensorFlow's variables of this rank's replicas."""
        found: Sequence[Any] = self._strategy.experimental_local_results(variable._value)
        return found


def _rows(local: Sequence[Any]) -> Array:
    return np.stack([one.numpy() for one in local])


def _once(name: str, local: Sequence[Any]) -> Part:
    def write(value: Array) -> None:
        for one in local:
            one.assign(value)

    dtype = np.dtype(local[0].dtype.as_numpy_dtype)
    return Part(name, tuple(local[0].shape.as_list()), dtype, local[0].numpy, write)


def _assign_to(local: Sequence[Any]) -> Callable[[Array], None]:
    def write(values: Array) -> None:
        for one, value in zip(local, values, strict=True):
            one.assign(value)

    return write


def global_seed() -> int:
    """Return TensorFlow's global seed, or -1."""
    found = eager.global_seed()
    return -1 if found is None else int(found)


# ---------------------------------------------------------- the generators of Python and NumPy


def _generator_states() -> dict[str, Array]:
    """Return the states of the global generators as arrays."""
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - the global one
    return {
        "python": np.array(words, np.uint32),
        "numpy": np.array([*keys, position, has_gauss], np.uint32),
        "gauss": np.array([math.nan if gauss is None else gauss, cached]),
    }


def _set_generators(states: dict[str, Array]) -> None:
    gauss, cached = map(float, states["gauss"])
    words = tuple(map(int, states["python"]))
    random.setstate((3, words, None if math.isnan(gauss) else gauss))
    *_, position, has_gauss = map(int, states["numpy"])
    keys = states["numpy"][:_NUMPY_WORDS]
    np.random.set_state(("MT19937", keys, position, has_gauss, cached))  # noqa: NPY002
