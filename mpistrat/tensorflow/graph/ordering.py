"""Run the collectives of a graph in the order in which they were traced.

TensorFlow keeps that order between stateful operations of one graph, but not with those in a
branch, a loop or a function that it calls: these it orders by the resources that they touch. So
each collective stands between two marks, operations that do nothing; TensorFlow is told that a
mark touches a resource, and so does each operation that has marks inside. A true resource would
do, too, but as an input of the function it costs 20 to 30 us a step.

Functions that compute gradients are not ordered at all, so a mark also waits for the one before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["in_order"]

_ATTRIBUTE = "_mpistrat_order"  # of marks; operations may have any whose name begins like this
_LAST = "_mpistrat_last"  # of graphs: the mark after their last collective
_CALLERS = frozenset(
    f"{prefix}{name}"
    for name in ("PartitionedCall", "If", "While", "Case")
    for prefix in ("", "Stateless", "Stateful")
)


def in_order(call: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    """Return the results of `call`, ordered after all earlier collectives of the graph."""
    # Eager calls follow each other. Only functions of TensorFlow 2 get automatic control
    # dependencies, which heed the marks.
    if tf.executing_eagerly() or not tf.compat.v1.executing_eagerly_outside_functions():
        return call()
    # Before the first mark: TensorFlow asks its resolvers when the tracing of this function ends.
    _resource()
    graph = tf.compat.v1.get_default_graph()
    last = getattr(graph, _LAST, None)
    with tf.control_dependencies([_mark([] if last is None else [last])]):
        results = call()
    # This mark waits for the results, and the next collective for this mark.
    setattr(graph, _LAST, _mark(results))
    return results


def _mark(after: list[Any]) -> Any:
    with tf.control_dependencies(after):
        mark = tf.no_op("mpistrat_order")
    private_graph.set_flag(mark, _ATTRIBUTE)
    return mark


@functools.cache
def _resource() -> tf.Tensor:
    """Return the pretended resource, and report it to TensorFlow from now on."""
    with tf.Graph().as_default():
        resource = tf.compat.v1.placeholder(tf.resource, [], "mpistrat_order")
    private_graph.resolve_resources(_touch)
    return resource


def _touch(operation: Any, reads: Any, writes: Any) -> bool:
    """Add the resource to `writes` if an operation touches it."""
    del reads
    # TensorFlow asks again until no resolver has changed anything.
    if not _is_ordered(operation) or _resource() in writes:
        return False
    writes.add(_resource())
    return True


def _is_ordered(operation: Any) -> bool:
    if operation.type == "NoOp":
        return _ATTRIBUTE in operation.node_def.attr
    if operation.type not in _CALLERS:
        return False
    return any(map(_has_marks, private_graph.functions_of(operation.node_def)))


@functools.cache
def _has_marks(function: str) -> bool:
    """Whether a function, or one that it calls, has a collective in it."""
    nodes = private_graph.nodes_of(function)
    if any(_ATTRIBUTE in node.attr for node in nodes):
        return True
    return any(_has_marks(name) for node in nodes for name in private_graph.functions_of(node))
