"""Cluster resolvers; ``tf.distribute.cluster_resolver`` for MPI."""

from __future__ import annotations

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.mpi_resolver import MPIClusterResolver
from mpistrat.cluster.resolvers import (
    ClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
)

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "TFConfigClusterResolver",
]
