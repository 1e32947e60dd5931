"""Run a snippet under TensorFlow's own strategy and under ours, and compare what it returns.

TensorFlow's strategy has all replicas in one process, on logical CPUs; ours has some of them on
each rank. Every rank process runs both. For TensorFlow's on several processes, which runs the same
snippets, see :mod:`helpers.tf.two_processes`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import mpistrat.tensorflow as distribute
from mpistrat.collectives import shutdown
from mpistrat.errors import CommunicationError
from mpistrat.testing.layouts import Layout
from mpistrat.testing.sets import with_all

__all__ = [
    "ACCUMULATING",
    "BACKED",
    "CENTRAL",
    "EVERYWHERE",
    "MIRRORED",
    "SPREAD",
    "Case",
    "Leaf",
    "Raised",
    "Rows",
    "Snippet",
    "by_id",
    "compare",
    "drop",
    "leaf",
    "mirrored_cpus",
    "mirrored_on",
    "of_tensorflow",
    "outcome",
    "raised",
    "same",
    "some",
    "steady",
]

Snippet = Callable[[Any], Any]
_KEYS = itertools.count(1000, 1000)


def mirrored_on(names: list[str]) -> Any:
    """Return TensorFlow's, with keys of its own: two with equal ones mix up collectives."""

    class MirroredStrategy(tf.distribute.MirroredStrategy):  # type: ignore[misc]
        _collective_key_base = next(_KEYS)

    return MirroredStrategy(names)


def mirrored_cpus(count: int = 2) -> Any:
    """Return TensorFlow's own strategy over so many logical CPUs of this process."""
    return mirrored_on([f"CPU:{i}" for i in range(count)])


def _largest(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return twice the largest plus the first: it is no sum, and the order counts."""
    return 2 * tf.reduce_max(tf.stack(values), axis=0) + values[0]


def _to_one_device(names: list[str]) -> Any:
    return tf.distribute.ReductionToOneDevice(names[-1], _largest)


_MAKERS: dict[str, tuple[Callable[[list[str]], Any], Callable[[list[str]], Any]]] = {
    "Mirrored": (mirrored_on, distribute.MirroredStrategy),
    "Backed": (mirrored_on, lambda names: distribute.TFBackedStrategy(mirrored_on(names))),
    "Accumulating": (
        lambda names: tf.distribute.MirroredStrategy(names, _to_one_device(names)),
        lambda names: distribute.MirroredStrategy(names, _to_one_device(names)),
    ),
    "MultiWorker": (mirrored_on, lambda _: distribute.MultiWorkerMirroredStrategy()),
    "Central": (
        lambda names: tf.distribute.experimental.CentralStorageStrategy(names, "CPU:0"),
        lambda names: distribute.CentralStorageStrategy(names, "CPU:0"),
    ),
    "OneDevice": (
        lambda names: tf.distribute.OneDeviceStrategy(names[0]),
        lambda names: distribute.OneDeviceStrategy(names[0]),
    ),
}


@functools.cache
def _reference(kind: str, replicas: int) -> Any:
    """Return TensorFlow's strategy; one for all tests, since it cannot be closed."""
    return _MAKERS[kind][0]([f"CPU:{i}" for i in range(replicas)])


@dataclass(frozen=True)
class Case(Layout):
    """A strategy on ranks × local devices; a test's parameter of the name ``layout``.

    Attributes
    ----------
    kind
        The name of its class, shortened.
    """

    kind: str = "Mirrored"

    def __str__(self) -> str:
        """Return the id of the test case."""
        return f"{self.kind}-{super().__str__()}"

    @property
    def takes_long(self) -> bool:
        """Whether tests with this case do (`mpistrat.testing.sets`)."""
        return str(self) in _LONG

    @property
    def reference(self) -> Any:
        """TensorFlow's strategy with as many replicas, all in this process."""
        return _reference(self.kind, self.replicas)

    def ours(self) -> Any:
        """Return a new strategy of ours, to be used in a ``with`` statement."""
        return _MAKERS[self.kind][1](self.device_names)


def _cases(kind: str, *layouts: tuple[int, int]) -> tuple[Case, ...]:
    return tuple(Case(*layout, kind) for layout in layouts)


def some(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return those of `cases` that are to run."""
    return tuple(case for case in cases if with_all() or str(case) in (*_MAIN, *_LONG))


_MAIN = ("Mirrored-2x1", "OneDevice-1x1", "Accumulating-2x1")
# The other kinds run the same snippets elsewhere: MultiWorker beside TensorFlow's own on two
# processes (differential/test_two_processes.py), Backed in
# wrapped_strategy/test_driven_snippets.py.
_LONG = ("Central-2x1",)
_ONE = some(_cases("Mirrored", (1, 1)))
MIRRORED = (*_ONE, *some(_cases("Mirrored", (1, 2), (2, 1), (2, 2))))
CENTRAL = some(_cases("Central", (1, 2), (2, 1), (2, 2)))
ACCUMULATING = some(_cases("Accumulating", (1, 1), (1, 2), (2, 1), (2, 2)))
"""Those with an ``accumulation_fn`` that is no sum."""
BACKED = some(_cases("Backed", (2, 1)))
"""TensorFlow's own on each rank, as slices of one."""
SPREAD = (*MIRRORED[len(_ONE) :], *some(_cases("MultiWorker", (2, 1))), *BACKED, *CENTRAL)
"""Those with several replicas."""
EVERYWHERE = (*_ONE, *SPREAD, *_cases("OneDevice", (1, 1)))


# -------------------------------------------------------------------------- what a snippet returns


def by_id(strategy: Any, value: Callable[[tf.Tensor], Any] = tf.identity) -> Any:
    """Return a value for each replica, made of its number."""

    def fn() -> Any:
        return value(tf.distribute.get_replica_context().replica_id_in_sync_group)

    return strategy.run(fn)


def of_tensorflow(strategy: Any) -> Any:
    """Return what is the current strategy in a scope: of `TFBackedStrategy`, TensorFlow's."""
    return getattr(strategy, "tf_strategy", strategy)


def drop(strategy: Any) -> None:
    """Close a strategy that can no longer be used, and let the job end well all the same."""
    with suppress(CommunicationError):
        strategy.close()
    shutdown.forget(strategy.communicator)


def steady(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switch off autotuning: TensorFlow's thread for it may notice its end a minute late."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@dataclass(frozen=True)
class Raised:
    """That a call has raised an error: the names of its classes, the most special one first."""

    kinds: tuple[str, ...]
    text: str


def raised(call: Callable[[], Any]) -> Raised | str:
    """Return what `call` raises, to be compared."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        return Raised(tuple(kind.__name__ for kind in type(error).__mro__), str(error))
    return "nothing was raised"


@dataclass(frozen=True)
class Rows:
    """Values by replica, or some such for several steps, whose rows count, wherever they are."""

    values: Sequence[Any]

    def of(self, strategy: Any) -> tuple[Any, ...]:
        """Return the rows of this process."""
        parts = (part for one in self.values for part in strategy.experimental_local_results(one))
        return tuple(row for part in parts for row in part.numpy().tolist())


@dataclass(frozen=True)
class Leaf:
    """A leaf of an outcome.

    Attributes
    ----------
    kind
        The class if it has a value for each replica, else "bare".
    values
        Of this process's replicas; one if it is bare.
    """

    kind: str
    values: tuple[Any, ...]


def leaf(strategy: Any, value: Any) -> Leaf:
    """Return what is compared of a leaf of what a snippet returned."""
    if isinstance(value, Rows):
        return Leaf("rows", value.of(strategy))
    values = strategy.experimental_local_results(value)
    is_bare = not isinstance(value, tf.distribute.DistributedValues)
    return Leaf("bare" if is_bare else type(value).__name__, tuple(map(_plain, values)))


def _plain(value: Any) -> Any:
    """Return what can be compared and sent: dtypes, shapes and numbers."""
    if isinstance(value, tf.IndexedSlices):
        return "slices", *map(_plain, (value.values, value.indices, value.dense_shape))
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        parts = tf.nest.flatten(value, expand_composites=True)
        return type(value).__name__, *map(_plain, parts)
    if isinstance(value, tf.Variable):
        return "variable", *_array(value)
    if isinstance(value, tf.Tensor):
        return "tensor", *_array(value)
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, value.tolist()
    return value


def _array(value: Any) -> tuple[Any, ...]:
    return value.dtype.name, tuple(value.shape), value.numpy().tolist()


# ----------------------------------------------------------------------------- comparing outcomes


def same(cases: Sequence[Case] = EVERYWHERE) -> Callable[[Snippet], Callable[[Case], None]]:
    """Make a test of a snippet: a function of a strategy that returns a nest.

    A value for each replica has to be TensorFlow's, replica by replica. Everything else has to be
    TensorFlow's on every rank. An error has to be of TensorFlow's class, or derived from it. The
    test keeps its ``snippet``.
    """

    def decorate(snippet: Snippet) -> Callable[[Case], None]:
        def test(layout: Case) -> None:
            compare(layout, snippet)

        test.__name__, test.__doc__ = snippet.__name__, snippet.__doc__
        test.__qualname__, test.__module__ = snippet.__qualname__, snippet.__module__
        test.snippet = snippet  # type: ignore[attr-defined]
        return pytest.mark.parametrize("layout", cases, ids=str)(test)

    return decorate


def compare(case: Case, snippet: Snippet) -> None:
    """Check that ours gives what TensorFlow's does; see `same`. **Collective.**"""
    want = outcome(case.reference, snippet)
    with case.ours() as strategy:
        mine = outcome(strategy, snippet)
        ranks = [mine] if case.ranks == 1 else strategy.communicator.allgather_object(mine)
    for found in ranks:
        tf.nest.assert_same_structure(want, found)
    found_by_leaf = zip(*map(tf.nest.flatten, ranks), strict=True)
    for wanted, found in zip(tf.nest.flatten(want), found_by_leaf, strict=True):
        _compare_leaf(case, wanted, found)


def outcome(strategy: Any, snippet: Snippet) -> Any:
    """Return what is compared of what a snippet returns: a nest of `Leaf`."""
    return tf.nest.map_structure(lambda value: leaf(strategy, value), snippet(strategy))


def _compare_leaf(case: Case, want: Leaf, ranks: Sequence[Leaf]) -> None:
    if want.kind == "rows":
        assert sorted(row for rank in ranks for row in rank.values) == sorted(want.values)
        return
    first = want.values[0]
    if isinstance(first, Raised):
        for rank in ranks:
            assert isinstance(rank.values[0], Raised), f"{first} is wanted, not {rank}"
            assert first.kinds[0] in rank.values[0].kinds, f"{first} is wanted, not {rank}"
        return
    if want.kind == "bare":
        assert list(ranks) == [want] * case.ranks, f"{want} is wanted, not {ranks}"
        return
    if case.devices > 1:
        assert {rank.kind for rank in ranks} == {want.kind}
    assert tuple(value for rank in ranks for value in rank.values) == want.values
