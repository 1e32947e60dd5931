"""All checks, in the order of the report.

A new check is a file in a folder here, and a name below.
"""

from __future__ import annotations

from typing import Any

from mpistrat.doctor.check import Check
from mpistrat.doctor.checks.cpus import cpu_mask, slurm_cpus_per_task, thread_count
from mpistrat.doctor.checks.files import caches, environment, shared_memory, temporary_folder
from mpistrat.doctor.checks.gpus import (
    gpu_aware_mpi,
    health,
    mpi_and_nccl,
    near_cpus,
    one_rank_each,
    peers_visible,
)
from mpistrat.doctor.checks.job import resource_limits, time_limit
from mpistrat.doctor.checks.launch import known_bad_versions, one_job, one_mpi_library, slurm_mpi
from mpistrat.doctor.checks.network import bandwidth, interfaces, nccl_transport
from mpistrat.doctor.checks.ranks import clocks, same_environment, slow_rank
from mpistrat.doctor.checks.site import (
    cpu_map,
    gpu_map,
    launcher,
    node,
    options,
    slurm_configuration,
    storage,
    variables,
)
from mpistrat.doctor.checks.site import interfaces as site_interfaces

__all__ = ["CHECKS"]

_MODULES = (
    *(one_job, slurm_mpi, one_mpi_library, known_bad_versions),
    *(cpu_mask, slurm_cpus_per_task, thread_count),
    *(one_rank_each, peers_visible, near_cpus, gpu_aware_mpi, mpi_and_nccl, health),
    *(interfaces, nccl_transport, bandwidth),
    *(shared_memory, temporary_folder, environment, caches),
    *(resource_limits, time_limit),
    *(same_environment, clocks, slow_rank),
    *(
        options,
        launcher,
        cpu_map,
        gpu_map,
        node,
        variables,
        site_interfaces,
        slurm_configuration,
        storage,
    ),
)

CHECKS: tuple[Check[Any], ...] = tuple(module.CHECK for module in _MODULES)
