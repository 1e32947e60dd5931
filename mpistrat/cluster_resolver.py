"""``tf.distribute.cluster_resolver``, with a resolver of MPI ranks."""

from __future__ import annotations

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import (
    ClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
)
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "TFConfigClusterResolver",
]
