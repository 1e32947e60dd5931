"""TensorFlow's private modules for TPUs; see `api`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private.api import load

__all__ = [
    "before_tpu_gathers",
    "in_tpu_program",
    "initialized_tpu",
    "initialized_tpus",
    "is_device_assignment",
    "is_tpu_strategy",
    "name_of",
]

_modules = load(
    {
        "distribute.tpu_strategy": ("TPUExtended", "_TPUReplicaContext"),
        "distribute.tpu_util": ("enclosing_tpu_context",),
        "tpu.device_assignment": ("DeviceAssignment",),
        "tpu.tpu_strategy_util": ("_INITIALIZED_TPU_SYSTEMS",),
    }
)


def initialized_tpus() -> Any:
    """Return the topologies of the TPUs that the program has initialized, by name."""
    return _modules["tpu.tpu_strategy_util"]._INITIALIZED_TPU_SYSTEMS


def initialized_tpu(resolver: Any) -> Any:
    """Return the topology of a resolver's TPU if the program has initialized it; else None."""
    return initialized_tpus().get(name_of(resolver))


def name_of(resolver: Any) -> str:
    """Return the name by which TensorFlow remembers a resolver's TPU."""
    name: str = tf.compat.as_text(getattr(resolver, "_tpu", ""))
    return name


def is_device_assignment(value: Any) -> bool:
    """Whether a value is a DeviceAssignment: the TPU cores of each replica."""
    return isinstance(value, _modules["tpu.device_assignment"].DeviceAssignment)


def is_tpu_strategy(strategy: Any) -> bool:
    """Whether a strategy runs programs on TPUs."""
    return isinstance(strategy.extended, _modules["distribute.tpu_strategy"].TPUExtended)


def in_tpu_program() -> bool:
    """Whether the graph that is traced now is part of a TPU program."""
    return _modules["distribute.tpu_util"].enclosing_tpu_context() is not None


def before_tpu_gathers(check: Callable[[Any], None]) -> None:
    """Call `check` with a TPU strategy's `extended` before each gather."""
    kind = _modules["distribute.tpu_strategy"]._TPUReplicaContext
    original = kind.all_gather

    @functools.wraps(original)
    def all_gather(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self.strategy.extended)
        return original(self, *args, **kwargs)

    kind.all_gather = all_gather
