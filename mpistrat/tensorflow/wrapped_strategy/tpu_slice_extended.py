"""The machinery of one TPU, combined on the host with that of the other slices.

So what TensorFlow calls by itself, such as when a variable is read, is of all slices, too. A TPU's
program cannot wait for MPI: in one, sums and gathers of one slice only are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.same_variables.variable_order import name_of
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.private import tpu as private_tpu
from mpistrat.tensorflow.wrapped_strategy.on_read_variables import read_over_slices

__all__ = ["TPUSliceExtended"]

_SUM = tf.distribute.ReduceOp.SUM
_HOST = "CPU:0"


class TPUSliceExtended:
    """Stands before a StrategyExtended of TPUs. Its methods are **Collective**.

    Attributes
    ----------
    bridge
        The collectives between slices.
    """

    bridge: Bridge

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Make a variable that begins as slice 0's, and is read alike on all."""
        found, dtype = kwargs["initial_value"], kwargs.get("dtype")
        name = name_of(kwargs.get("name"))
        kwargs["initial_value"] = functools.partial(self._first, found, dtype, name)
        made = super()._create_variable(next_creator, **kwargs)  # type: ignore[misc]
        return read_over_slices(made)

    def _first(self, found: Any, dtype: Any, name: str) -> tf.Tensor:
        # A variable that is restored as it is made begins with the checkpoint's value.
        value = private_api.checkpointed_value(found() if callable(found) else found)
        return self.bridge.broadcast_first(tf.convert_to_tensor(value, dtype=dtype), name)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if private_tpu.in_tpu_program():
            raise _unreachable("a sum over", "reduce")
        self.bridge.require_open()

        with tf.device(_HOST):
            results = self._reduced(reduce_op, tf.nest.flatten(value), options)
        placed = [private_api.placed(one, destinations) for one in results]
        return tf.nest.pack_sequence_as(value, placed)

    def _reduced(self, reduce_op: Any, values: list[Any], options: Any) -> list[tf.Tensor]:
        """Return sums or means, by one collective."""
        # A slice whose sum fails tells the others in place of the collective.
        with self.bridge.communicator.checking():
            mine = [self._reduced_here(reduce_op, one, options) for one in values]
        counts = [count for _, count in mine]
        how = "sum" if reduce_op == _SUM else "sum of a mean"
        totals = self.bridge.all_reduce([total for total, _ in mine], how)
        if reduce_op == _SUM:
            return totals
        return [
            total / (count * self.bridge.size) for total, count in zip(totals, counts, strict=True)
        ]

    def _reduced_here(self, reduce_op: Any, value: Any, options: Any) -> tuple[tf.Tensor, int]:
        """Return the sum of this slice, and of how many; one that is bare counts once."""
        is_distributed = isinstance(value, tf.distribute.DistributedValues)
        op = _SUM if is_distributed else reduce_op
        mine = super()._reduce_to(op, value, _HOST, options)  # type: ignore[misc]
        return tf.convert_to_tensor(mine), len(value.values) if is_distributed else 1

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        self.bridge.require_open()
        with tf.device(_HOST):
            with self.bridge.communicator.checking():
                mine = super()._gather_to_implementation(  # type: ignore[misc]
                    value, _HOST, axis, options
                )
                mine = tf.convert_to_tensor(mine)
            result = self.bridge.all_gather(mine, axis)
        return private_api.placed(result, destinations)

    def _make_dataset_iterator(self, dataset: Any) -> NoReturn:
        del dataset
        raise _of_one_slice("make_dataset_iterator", "experimental_distribute_dataset")

    def _make_input_fn_iterator(self, *_: Any, **__: Any) -> NoReturn:
        raise _of_one_slice("make_input_fn_iterator", "distribute_datasets_from_function")


def _of_one_slice(method: str, instead: str) -> UsageError:
    return UsageError(
        f"{method} over the TPUs of several ranks, of which it would give each all data; use"
        f" strategy.{instead}, which gives each its share"
    )


def _unreachable(what: str, method: str) -> Exception:
    error: Exception = of_both(
        UsageError(
            f"{what} replicas inside of a TPU's program, where the other slices cannot be reached;"
            f" return the values from strategy.run, give them to strategy.{method}, and use the"
            " result in a second strategy.run"
        )
    )
    return error


def _refuse_of_slices(extended: Any) -> None:
    if isinstance(extended, TPUSliceExtended):
        raise _unreachable("a gather of", "gather")


# TensorFlow sends integers between the cores of one TPU to gather them, and asks no other member;
# all else it gathers by a sum, which `_reduce_to` refuses.
private_tpu.before_tpu_gathers(_refuse_of_slices)
