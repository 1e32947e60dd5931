"""`TFBackedStrategy`: a strategy of this package over any strategy of TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import all_or_none
from mpistrat.errors import UsageError
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.private import tpu as private_tpu
from mpistrat.tensorflow.strategies.older_members import OlderMembers
from mpistrat.tensorflow.wrapped_strategy.base import WrappedStrategy
from mpistrat.tensorflow.wrapped_strategy.mirrored_slice import MirroredSlice
from mpistrat.tensorflow.wrapped_strategy.one_driver.link import DriverLink
from mpistrat.tensorflow.wrapped_strategy.one_driver.roles import DriverRank, WaitingRank
from mpistrat.tensorflow.wrapped_strategy.tpu_slice import TPUSlice

__all__ = ["TFBackedStrategy"]


class TFBackedStrategy(OlderMembers):
    """A strategy of TensorFlow's with the members of ours, alone or under MPI.

    On several ranks there are two ways. Without `driver` each rank drives a strategy of its own, a
    slice: gradients and reductions are summed over all slices, datasets are sharded over them,
    ``gather`` has their values in the order of the ranks, and all replicas count. With `driver`
    that rank alone has TensorFlow's strategy; the others run the same program, call nothing of
    what they give to ``run``, and sleep in ``reduce``, ``gather``, ``on_driver`` and for the next
    batch until the result is there. Batches and what ``run`` returns are a ``ValueOnDriver`` for
    them, or nests of those: they are passed on, parts of what ``run`` returns are taken by
    ``value[0]`` or ``value["key"]``, and all else is refused.

    Parameters
    ----------
    tf_strategy
        A tf.distribute.Strategy in which nothing was made yet, or a function that returns one: it
        is called on the ranks that drive only, and its error reaches all (from one of several that
        drive as a ClusterError, if it is none of mpistrat's). As slices it has to be a
        tf.distribute.MirroredStrategy, which becomes one of all ranks.
    driver
        The rank that drives; None if each does.
    comm, backend
        As of `MirroredStrategy`.

    Raises
    ------
    UsageError
        On all ranks: an argument is wrong, or ranks have unequal numbers of replicas.

    Notes
    -----
    **Collective** over `comm`. All ranks have to call ``close()`` in the end, or use a ``with``
    statement: who waits does so until the driving rank is there.

    Keras works in its scope: with slices ``fit`` is the one of all ranks; with a driver that rank
    trains, and the others get the weights, the optimizer's state, the history and what
    ``evaluate`` and ``predict`` return. Callbacks are called on the driving rank only. Other
    variables of ranks that wait are not trained: have the driving rank's by
    ``on_driver(variable.numpy)``. Models, checkpoints and SavedModels of what was made in the
    scope are written by the driving rank, while the others wait: all ranks save, with the same
    file name (in folders that may differ), and not one alone ``if strategy.is_chief``. To save
    to a folder of the driving rank's, all ranks call ``strategy.on_driver(model.save, path)``.
    All calls have to be made by all ranks in the same order.

    Each ``fit`` and each ``train_on_batch`` pickles all weights and the optimizer's state, sends
    them to all ranks, and waits until they have them: a copy or two of the model for each call. In
    a loop over batches call ``strategy.on_driver(model.train_on_batch, x, y)``, which sends its
    result only, and ``model.train_on_batch`` where the others are to have the weights.

    References
    ----------
    tf.distribute.Strategy.
    """

    def __init__(
        self,
        tf_strategy: Any,
        *,
        driver: int | None = None,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        communicator = Communicator(comm, backend)
        _check(communicator, driver)
        self._wrapped = self._made(tf_strategy, communicator, driver)

    def _made(self, given: Any, communicator: Communicator, driver: int | None) -> WrappedStrategy:
        if driver is None:
            return self._of_each(communicator, given)
        link = DriverLink(communicator, driver)
        made: list[Any] = []

        def make() -> int:
            made.append(_strategy(given))
            return int(made[0].num_replicas_in_sync)

        count = link.on_driver("making TensorFlow's strategy", make)
        if not link.is_driver:
            return WaitingRank(communicator, link, count)
        return DriverRank(_alone(made[0], communicator), link)

    def _of_each(self, communicator: Communicator, given: Any) -> WrappedStrategy:
        """Return what wraps the strategies of ranks that all drive. **Collective.**"""
        made: list[Any] = []

        def make() -> tuple[str, bool]:
            made.append(_strategy(given))
            return type(made[0]).__name__, private_tpu.is_tpu_strategy(made[0])

        # Before the ranks compare replicas: one that cannot make its strategy would not come to
        # that.
        found = all_or_none(communicator, make, "making its strategy")
        if len({is_tpu for _, is_tpu in found}) > 1:
            communicator.close()  # all ranks raise it
            raise UsageError(
                f"strategies by rank: {[name for name, _ in found]}; expected those of TPUs on all"
                " ranks, or on none"
            )
        if found[0][1]:
            return TPUSlice(made[0], communicator)
        kind = WrappedStrategy if communicator.size == 1 else MirroredSlice
        return kind(made[0], communicator)

    # ------------------------------------------------------------------------------ who am I

    @property
    def tf_strategy(self) -> tf.distribute.Strategy:
        """TensorFlow's strategy, which is the current one in a scope.

        With slices, its ``reduce`` and ``gather`` outside of ``run`` are of all of them, and
        **Collective**; a TPU's distributes datasets as if it was the only one. On a rank that
        waits it is a stand-in.
        """
        return self._wrapped.tf_strategy

    @property
    def communicator(self) -> Communicator:
        """Collectives of arrays between the ranks."""
        return self._wrapped.communicator

    @property
    def is_driver(self) -> bool:
        """Whether this rank runs what is given to ``run``."""
        return self._wrapped.drives

    @property
    def is_chief(self) -> bool:
        """Whether this rank writes what is to be written once: rank 0, or the one that drives.

        With slices, all ranks have to save checkpoints and models with ``ON_READ`` variables, such
        as Keras's metrics: these are summed over them. Of what all save to one path one is kept.
        With a driver, all ranks have to save what was made in the scope.
        """
        link = getattr(self._wrapped, "link", None)
        return self.communicator.rank == 0 if link is None else self.is_driver

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas over which gradients are summed, of all slices."""
        return self._wrapped.num_replicas

    @property
    def cluster_resolver(self) -> Any:
        """TensorFlow's; None if it has none, or on a rank that waits."""
        return self.tf_strategy.cluster_resolver

    @property
    def extended(self) -> Any:
        """TensorFlow's machinery."""
        return self.tf_strategy.extended

    # ------------------------------------------------------------------------------- running

    def scope(self) -> AbstractContextManager[Any]:
        """See tf.distribute.Strategy.scope. **Local.**"""
        return self._wrapped.scope()

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """See tf.distribute.Strategy.run. **Local**, unless `fn` calls collectives.

        A rank that waits calls nothing. If it raises here, the other ranks are told in their next
        collective.
        """
        return self._wrapped.run(fn, args, kwargs, options)

    def on_driver(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on the driving rank; return its result, or raise its error, on all.

        It is for whole steps, or loops over a distributed dataset, that are one ``tf.function``.
        Without a `driver` each rank calls it.

        Notes
        -----
        **Collective** with a `driver`. Of distributed values the others get a ``ValueOnDriver``;
        all else has to be tensors, arrays or plain data. A function that was traced here is traced
        again where it is called directly, and then raises UsageError on all ranks if it has
        ``reduce``, ``gather`` or batches in it.
        """
        return self._wrapped.on_driver(function, args, kwargs)

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """See tf.distribute.Strategy.reduce; all ranks get the result. **Collective.**"""
        return self._wrapped.reduce(reduce_op, value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """See tf.distribute.Strategy.gather; all ranks get the result. **Collective.**"""
        return self._wrapped.gather(value, axis)

    # --------------------------------------------------------------------------------- input

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """See tf.distribute.Strategy. **Collective.**

        With a `driver` that rank reads it, and iterating is **Collective**. With slices it is,
        too, unless the data is endless: all get as many batches. Who has none left gets some of no
        rows, till nobody has one; slices of TPUs whose batches have one shape end with the first
        that has none, but in a ``for`` of a ``tf.function``.
        """
        return self._wrapped.distribute_dataset(dataset, options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[..., Any], options: Any = None
    ) -> Any:
        """See tf.distribute.Strategy. **Collective**, as above."""
        return self._wrapped.datasets_from_function(dataset_fn, options)

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """See tf.distribute.Strategy. **Local.**"""
        return self._wrapped.values_from_function(value_fn)

    def experimental_local_results(self, value: Any) -> Any:
        """See tf.distribute.Strategy; a rank that waits has none. **Local.**"""
        return self._wrapped.local_results(value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_wrapped" not in vars(self):  # as while it is copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.tf_strategy, name)

    # ----------------------------------------------------------------------------------- end

    def close(self) -> None:
        """End the strategy, once all ranks are here. Idempotent. **Collective.**"""
        self._wrapped.close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After an error the other ranks may never close: they are told, and not waited for.
        if error is None:
            self.close()
        else:
            self.communicator.end(error)


def _alone(tf_strategy: Any, communicator: Communicator) -> WrappedStrategy:
    """Return what wraps the strategy of the only rank that has one."""
    if private_tpu.is_tpu_strategy(tf_strategy):
        return TPUSlice(tf_strategy, communicator, is_alone=True)
    return WrappedStrategy(tf_strategy, communicator)


def _strategy(given: Any) -> tf.distribute.Strategy:
    is_made = isinstance(given, tf.distribute.Strategy)
    found = given if is_made or not callable(given) else given()
    if not private_api.is_strategy(found):
        raise UsageError(
            f"tf_strategy={given!r}; expected a tf.distribute.Strategy, or a function that"
            " returns one"
        )
    return found


def _check(communicator: Communicator, driver: int | None) -> None:
    """Raise on all ranks if the ranks' drivers differ, or are no rank. **Collective.**"""
    # Both facts are gathered before anything is raised, so that all ranks raise the same.
    told = communicator.allgather_object(driver)
    is_rank = driver is None or (
        isinstance(driver, int)
        and not isinstance(driver, bool)
        and 0 <= driver < communicator.size
    )
    # Compared by repr: False equals 0, and a wrong argument may have no hash.
    if not all(communicator.allgather_object(is_rank)) or len(set(map(repr, told))) > 1:
        communicator.close()  # all ranks raise it
        raise UsageError(
            f"driver by rank: {told}; expected the same on all: None if each rank drives, or one"
            f" from 0 to {communicator.size - 1}"
        )
