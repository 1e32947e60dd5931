"""Find the variables that a graph's operations write, also in functions they call."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["handles_in_graph", "inputs_of_function", "number_of_operations"]

_WRITERS = ("Assign", "ResourceScatter", "ResourceApply", "ResourceStridedSlice")
_NOT_ARGUMENTS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
"""How many inputs of such operations, the first ones, their functions do not get."""


def number_of_operations() -> int:
    """Return how many operations the graph that is traced now has; 0 where none is. **Local.**"""
    graph = _graph()
    return 0 if graph is None else len(graph.get_operations())


def handles_in_graph(first: int) -> list[Any]:
    """Return handles of the variables that operations from index `first` on write.

    They are those that the graph which is traced now has captured, each once, in the order of the
    operations. **Local.**
    """
    graph = _graph()
    if graph is None:
        return []
    # Within the graph a variable is a placeholder; the capture leads to its handle outside.
    captured = {id(inner): outer for outer, inner in graph.captures}
    written: dict[int, Any] = {}
    # Earlier operations are of what was traced before this replica's step.
    for operation in graph.get_operations()[first:]:
        for index in _written_inputs(operation.node_def):
            handle = captured.get(id(operation.inputs[index]))
            if handle is not None:
                written[id(handle)] = handle
    return list(written.values())


def inputs_of_function(function: str, inputs: Sequence[Any]) -> list[Any]:
    """Return the `inputs` that a function, given by its name, writes. **Local.**"""
    return [inputs[index] for index in sorted(_arguments(function))]


def _graph() -> Any:
    """Return the graph of a function that is traced now, if there is one."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph if hasattr(graph, "captures") else None


def _written_inputs(node: Any) -> Iterator[int]:
    """Yield the indices of the inputs that a node, or a function that it may call, writes."""
    # The handle is the first input of all these operations.
    if node.op.startswith(_WRITERS):
        yield 0
        return
    for function in private_graph.functions_of(node):
        for index in sorted(_arguments(function)):
            yield index + _NOT_ARGUMENTS.get(node.op, 0)


@functools.cache
def _arguments(function: str) -> frozenset[int]:
    """Return the indices of the arguments that a function writes, or one that it calls."""
    names = {name: i for i, name in enumerate(private_graph.arguments_of(function))}
    found: set[int] = set()
    for node in private_graph.nodes_of(function):
        # Names with ^ are control inputs: they order a node, and it gets no value of them.
        inputs = [names.get(name) for name in node.input if not name.startswith("^")]
        written = (inputs[i] for i in _written_inputs(node) if i < len(inputs))
        found.update(index for index in written if index is not None)
    return frozenset(found)
