"""Run the native operation under XLA (``jit_compile=True``) as a custom call.

XLA orders calls by their data and by nothing else, be they stateful or not, and runs what is ready
side by side. Ranks that begin the same calls in different orders would add up the wrong tensors.
So each call takes a number that the one before it has handed through. No such number comes out of
a branch or a loop, so calls in these are refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf

from mpistrat.tensorflow.graph import native_op
from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["call", "refuse"]

_TARGET = "mpistrat_call"  # of kernels/tf/call_op.h
_CHAIN = "_mpistrat_chain"


def call(key: int, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Add a custom call of `key`'s callback to the compiled function; return its results.

    Raises
    ------
    NotImplementedError
        There is no compiled operation; a shape is not known; or this is a branch or a loop.
    """
    if native_op.load() is None:
        refuse("without the compiled operation (see the warning, or MPISTRAT_TF_NATIVE)")
    if private_graph.is_nested_in_xla():
        refuse("in a branch, a loop or a function in it, where XLA does not keep calls in order")
    graph = tf.compat.v1.get_default_graph()
    chain = getattr(graph, _CHAIN, None)
    # The last operand is the number. It makes this call depend on the one before.
    chained = [*tensors, tf.zeros([], tf.int32) if chain is None else chain]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in chained]
    *results, chain = private_graph.xla_custom_call(_TARGET, chained, specs, _text(key, specs))
    # Kept by the graph: a function traced into another one begins a chain of its own.
    setattr(graph, _CHAIN, chain)
    return list(results)


def _text(key: int, specs: Sequence[tf.TensorSpec]) -> str:
    """Return the call's description, which run_in_xla in kernels/tf/call_op.h parses."""
    nbytes = list(map(_nbytes, specs))
    shapes = [spec.shape.as_list() for spec in specs]
    words = [key, len(specs), *nbytes, *map(len, shapes), *itertools.chain(*shapes)]
    return " ".join(map(str, words))


def _nbytes(spec: tf.TensorSpec) -> int:
    count = spec.shape.num_elements()
    if count is None:
        refuse(f"of a tensor whose shape is known when it runs only, {spec.shape}")
    return int(count * spec.dtype.size)


def refuse(why: str) -> None:
    """Raise an error that says why a function that XLA compiles cannot have this collective.

    Raises
    ------
    NotImplementedError
        Always.
    """
    raise NotImplementedError(
        f"a collective between ranks in a function that XLA compiles (jit_compile=True), {why};"
        " leave jit_compile out, or compile only what the replicas do by themselves"
    )
