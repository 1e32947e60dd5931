"""Average the statistics of layers, such as moving means, over all replicas.

In Keras each replica keeps the statistics of its own rows in ``BatchNormalization``, so ranks
would predict and save different things. A moving mean is linear in the batches' means: averaging
it over the replicas after a step gives the same as averaging in each assignment. That is done at
the end of a ``strategy.run`` that has written statistics, by one all-reduce; replicas are weighted
by rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.graph import written_variables
from mpistrat.tensorflow.keras import row_weights
from mpistrat.tensorflow.own_strategies import our_replica
from mpistrat.tensorflow.private import eager

__all__ = ["averaged", "initialized", "made_by_layer", "moments_of_rows", "note_assignment"]

_LABEL = (
    "the mean of what layers such as BatchNormalization keep of their batches: call the layer in"
    " the same steps on all ranks, with an empty batch where there are no rows, or put the"
    " condition into a tf.function"
)
_MARK = "_mpistrat_is_statistic"  # set on Keras's variables, and on TensorFlow's in them


class _Local(threading.local):
    handles: dict[int, Any] | None = None  # that were written eagerly in this replica's step


_local = _Local()


# ---------------------------------------------------------------------- which variables these are


def made_by_layer(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Layer.add_weight``: mark variables that layers update without an aggregation.

    Statistics that a layer synchronizes itself are equal already. Optimizers' variables are not
    made by layers. A state of an RNN is no weight, and each replica's own.
    """

    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Keras may make TensorFlow's variable now or at the first use: both are marked
        # (`initialized`).
        variable = original(self, *args, **kwargs)
        is_trained = kwargs.get("trainable", True) or getattr(self, "synchronized", False)
        # Counters and seeds are integers: their mean would be meaningless.
        is_float = tf.as_dtype(variable.dtype).is_floating
        if is_float and not is_trained and variable.aggregation == "none":
            setattr(variable, _MARK, True)
            _mark(variable)
        return variable

    return add_weight


def initialized(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Variable._initialize``, which may come later than ``add_weight``."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _mark(self)

    return initialize


def _mark(variable: Any) -> None:
    value = variable._value
    if getattr(variable, _MARK, False) and isinstance(value, tf.distribute.DistributedValues):
        setattr(value, _MARK, True)


def _is_marked(value: Any) -> bool:
    return _MARK in getattr(value, "__dict__", ())  # TensorFlow's getattr may read the variable


def moments_of_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``BatchNormalization._moments``: a replica without rows takes the moving ones.

    The mean of no rows is NaN, and would make the gradients of all replicas NaN.
    """

    def moments(self: Any, inputs: Any, mask: Any) -> Any:
        found = original(self, inputs, mask)
        if self.synchronized or our_replica() is None or inputs.shape[0]:
            return found
        moving = (self.moving_mean, self.moving_variance)
        is_empty = tf.equal(tf.size(inputs), 0)
        return tuple(
            tf.where(is_empty, tf.cast(kept.value, moment.dtype), moment)
            for kept, moment in zip(moving, found, strict=True)
        )

    return moments


# ------------------------------------------------------------------------ what a step has written


def note_assignment(value: Any) -> None:
    """Note that a replica assigns to a variable now, if it does so eagerly. **Local.**"""
    is_here = tf.executing_eagerly() and not tf.distribute.in_cross_replica_context()
    if _local.handles is not None and is_here and _is_marked(value):
        _note([value.handle])


def _note_call(function: bytes, inputs: Any) -> None:
    """Note the variables that a ``tf.function`` writes, when it is called eagerly."""
    if _local.handles is not None and inputs:
        _note(written_variables.inputs_of_function(function.decode(), inputs))


def _note(handles: list[Any]) -> None:
    if _local.handles is not None:
        _local.handles.update((id(handle), handle) for handle in handles)


eager.watch_functions(_note_call)


@contextmanager
def averaged() -> Iterator[None]:
    """Average, at the end of the block, statistics that a replica function has written in it.

    All replicas enter it. **Collective** if statistics were written, else **Local**.
    """
    if _local.handles is not None:  # in a step of a replica already
        yield
        return
    _local.handles, first = {}, written_variables.number_of_operations()
    try:
        yield
        handles = [*_local.handles.values(), *written_variables.handles_in_graph(first)]
    finally:
        # Before the means are assigned, which is no writing of the step's own.
        _local.handles = None
    found = [variable for handle in handles if (variable := _statistic(handle)) is not None]
    if found:
        with _told():
            # In the order of writing, which is the same on all ranks, unlike that of a set.
            for dtype in dict.fromkeys(variable.dtype for variable in found):
                _average([variable for variable in found if variable.dtype == dtype])


@contextmanager
def _told() -> Iterator[None]:
    """Label the block's collectives, so that an error names the layers' statistics."""
    context = our_replica()
    extended = context.strategy.extended
    # In a graph a label would be set while tracing, and not when the collective runs.
    if not tf.executing_eagerly() or len(extended.worker_devices) > 1:
        yield  # replicas of one rank take turns: the label of one would be another's
        return
    with extended.bridge.communicator.labelled(_LABEL):
        yield


def _statistic(handle: Any) -> Any:
    """Return the variable with this handle of this replica, if it is one to be averaged here."""
    container: Any = getattr(handle, "_distributed_container", lambda: None)()
    context = our_replica()
    if context is None or not _is_marked(container):
        return None
    # In a replica `container.handle` is its own: a handle of another one is left to that.
    is_own = container.distribute_strategy is context.strategy and container.handle is handle
    return container if is_own else None


def _average(variables: list[Any]) -> None:
    """Give variables of one dtype their means over all replicas."""
    values = [variable.read_value() for variable in variables]
    mine = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
    means = tf.split(_mean(mine), [value.shape.num_elements() for value in values])
    for variable, value, mean in zip(variables, values, means, strict=True):
        variable.assign(tf.reshape(mean, value.shape))


def _mean(mine: tf.Tensor) -> tf.Tensor:
    """Return the mean of the replicas' tensors, each weighted by its rows."""
    context, share = tf.distribute.get_replica_context(), row_weights.current()
    if share is None:
        return context.all_reduce("mean", mine)
    share = tf.reshape(tf.cast(share, mine.dtype), [1])
    weighted = tf.where(share > 0, mine * share, 0)  # the mean of no rows is NaN
    # With the share in the same message all know whether anybody has rows.
    total = context.all_reduce("sum", tf.concat([weighted, share], axis=0))
    # Without rows anywhere each replica keeps what it has.
    return tf.where(total[-1:] > 0, total[:-1], mine)
