"""``tf.distribute.cluster_resolver``, with the resolvers of MPI ranks; the others are its own."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.resolvers.slurm import SlurmClusterResolver
from mpistrat.tensorflow import original_distribute

__all__ = ["MPIClusterResolver", "SlurmClusterResolver"]


def __getattr__(name: str) -> Any:
    return getattr(original_distribute.distribute.cluster_resolver, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(original_distribute.distribute.cluster_resolver)})
