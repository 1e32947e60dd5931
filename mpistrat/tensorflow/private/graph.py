"""TensorFlow's private modules for graphs and XLA; see `api`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private.api import load

__all__ = [
    "arguments_of",
    "converted",
    "functions_of",
    "in_xla",
    "is_compiled",
    "is_function",
    "is_nested_in_xla",
    "nodes_of",
    "refuse_in_vectorized_map",
    "resolve_resources",
    "set_flag",
    "with_body",
    "wrap_seeds",
    "xla_custom_call",
]

_FUNCTION = "eager.polymorphic_function.polymorphic_function"
_modules = load(
    {
        "autograph.core.ag_ctx": ("control_status_ctx",),
        "autograph.impl.api": ("tf_convert",),
        "eager.context": ("get_function_def",),
        _FUNCTION: ("Function",),
        "framework.auto_control_deps": ("register_acd_resource_resolver",),
        "framework.random_seed": ("get_seed",),
        "ops.control_flow_util": ("GraphOrParentsInXlaContext", "InXlaContext"),
    }
)
_XLA = "tensorflow.compiler.tf2xla.python.xla"


def resolve_resources(touch: Callable[[Any, Any, Any], bool]) -> None:
    """Let `touch` add to the resources that operations read and write, from now on.

    It is called with each operation of a function that was traced, and these sets; it returns
    whether it has changed them. Operations that write to one resource run in their order.
    """
    _modules["framework.auto_control_deps"].register_acd_resource_resolver(touch)


def refuse_in_vectorized_map(operation: str, error: Callable[[], Exception]) -> None:
    """Raise an error where ``tf.vectorized_map`` meets an operation, from now on. **Local.**

    It would otherwise make a loop of each operation by itself.
    """
    pfor = importlib.import_module("tensorflow.python.ops.parallel_for.pfor")

    def refuse(_: Any) -> Any:
        raise error()

    pfor.RegisterPFor(operation)(refuse)


def set_flag(operation: Any, name: str) -> None:
    """Set a boolean attribute of an operation in a graph."""
    operation._set_attr(name, tf.compat.v1.AttrValue(b=True))


def nodes_of(function: str) -> Any:
    """Return the nodes of a traced function by its name; none if it was not traced."""
    try:
        return _modules["eager.context"].get_function_def(function).node_def
    except tf.errors.NotFoundError:
        return ()


def arguments_of(function: str) -> list[str]:
    """Return the argument names of a traced function, in order."""
    try:
        definition = _modules["eager.context"].get_function_def(function)
    except tf.errors.NotFoundError:
        return []
    return [argument.name for argument in definition.signature.input_arg]


def functions_of(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node may call."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for one in value.list.func:
            yield one.name


def wrap_seeds(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap the function that gives random operations their two seeds."""
    seeds: Any = _modules["framework.random_seed"]
    seeds.get_seed = wrap(seeds.get_seed)


def is_function(value: Any) -> bool:
    """Whether a value is a ``tf.function``."""
    return isinstance(value, _modules[_FUNCTION].Function)


def is_compiled(function: Any) -> bool:
    """Whether XLA compiles a ``tf.function``."""
    return bool(function._jit_compile)


def with_body(function: Any, body: Callable[..., Any]) -> Any:
    """Return a ``tf.function`` that traces `body` with the options of another one."""
    return function._clone(python_function=body)


def converted(body: Callable[..., Any]) -> Any:
    """Return a Python function as AutoGraph converts it, if AutoGraph is on here."""
    status = _modules["autograph.core.ag_ctx"].control_status_ctx()
    return _modules["autograph.impl.api"].tf_convert(body, status)


def in_xla() -> bool:
    """Whether the function that is traced now is compiled by XLA."""
    graph = tf.compat.v1.get_default_graph()
    return bool(_modules["ops.control_flow_util"].GraphOrParentsInXlaContext(graph))


def is_nested_in_xla() -> bool:
    """Whether the graph is a branch, loop or function inside of one that XLA compiles.

    The graph around a compiled function is where TensorFlow notes that it is one.
    """
    outer = getattr(tf.compat.v1.get_default_graph(), "outer_graph", None)
    return outer is None or not _modules["ops.control_flow_util"].InXlaContext(outer)


def xla_custom_call(target: str, operands: Any, specs: Any, config: str) -> Any:
    """Add a custom call of the registered `target`; return its results."""
    xla = importlib.import_module(_XLA)  # slow to import, and rarely needed
    # Without the side effect XLA would drop a call whose results nobody uses.
    return xla.custom_call_v2(target, operands, specs, config, has_side_effect=True)
