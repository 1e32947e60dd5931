"""``tf.distribute.cluster_resolver``, with resolvers of MPI ranks."""

from __future__ import annotations

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.resolvers.simple import SimpleClusterResolver
from mpistrat.cluster.resolvers.slurm import SlurmClusterResolver
from mpistrat.cluster.resolvers.tf_config import TFConfigClusterResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
]
