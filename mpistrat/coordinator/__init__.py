"""``tf.distribute.coordinator`` for arrays: a chief sends functions to workers."""

from mpistrat.coordinator.cluster_coordinator import ClusterCoordinator
from mpistrat.coordinator.evaluator import SidecarEvaluator
from mpistrat.coordinator.per_worker import PerWorkerValues
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.worker import experimental_get_current_worker_index

__all__ = [
    "ClusterCoordinator",
    "PerWorkerValues",
    "RemoteValue",
    "SidecarEvaluator",
    "experimental_get_current_worker_index",
]
