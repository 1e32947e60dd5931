"""`Use`: a place where a program names something of Horovod's, by the module that offers it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["MODULES", "OTHER_FRAMEWORKS", "Use", "horovods"]

OTHER_FRAMEWORKS = ("horovod.torch", "horovod.mxnet", "horovod.spark", "horovod.ray")
_MODULES = ("horovod.tensorflow.keras", "horovod.keras", "horovod.tensorflow", "horovod")
MODULES = ("horovod.tensorflow", "horovod.keras")
"""The modules that are for TensorFlow."""

# Where Horovod defines what it offers one level above.
_INNER = ("mpi_ops", "functions", "sync_batch_norm", "gradient_aggregation", "compression")


@dataclass(frozen=True, eq=False)
class Use:
    """A place where a program names something of Horovod's for TensorFlow.

    Attributes
    ----------
    node
        The name or attribute.
    module, name
        The public module of Horovod and what is taken from it: ``horovod.tensorflow``, ``rank``.
    call
        The call, if it is called there.
    """

    node: ast.expr
    module: str
    name: str
    call: ast.Call | None


def horovods(path: str) -> tuple[str, str] | None:
    """Return the module and the name that a dotted path stands for; None if not Horovod's."""
    if path in _MODULES or path.startswith(OTHER_FRAMEWORKS):
        return None
    for module in _MODULES:
        if path.startswith(module + "."):
            parts = [part for part in path[len(module) + 1 :].split(".") if part not in _INNER]
            return (module, ".".join(parts)) if parts else None
    return None
