"""The names of tf.distribute that an unchanged program gets this package's classes for."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["EXCHANGED", "exchanged"]

_OURS = "mpistrat.tensorflow"
_HERE = "mpistrat.tensorflow.unchanged_programs"

EXCHANGED: dict[str, str] = {
    "MirroredStrategy": f"{_HERE}.strategies:MirroredStrategy",
    "MultiWorkerMirroredStrategy": f"{_HERE}.strategies:MultiWorkerMirroredStrategy",
    "OneDeviceStrategy": f"{_OURS}:OneDeviceStrategy",
    "ParameterServerStrategy": f"{_HERE}.parameter_servers:ParameterServerStrategy",
    "Server": f"{_HERE}.parameter_servers:Server",
    "TPUStrategy": f"{_OURS}:TPUStrategy",
    "cluster_resolver.SlurmClusterResolver": f"{_OURS}.cluster_resolver:SlurmClusterResolver",
    "cluster_resolver.TFConfigClusterResolver": f"{_HERE}.resolvers:TFConfigClusterResolver",
    "coordinator.ClusterCoordinator": f"{_OURS}.coordinator:ClusterCoordinator",
    "experimental.CentralStorageStrategy": f"{_OURS}:CentralStorageStrategy",
    "experimental.MultiWorkerMirroredStrategy": (
        f"{_HERE}.strategies:OlderMultiWorkerMirroredStrategy"
    ),
    "experimental.ParameterServerStrategy": f"{_HERE}.parameter_servers:ParameterServerStrategy",
    "experimental.coordinator.ClusterCoordinator": f"{_OURS}.coordinator:ClusterCoordinator",
}
"""From a name below ``tf.distribute`` to the class that takes its place."""


def exchanged(name: str) -> Any:
    """Return the class that takes the place of a name below ``tf.distribute``."""
    module, _, attribute = EXCHANGED[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
