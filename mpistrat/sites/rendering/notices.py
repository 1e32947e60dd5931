"""Word what a user should know of a script before it is submitted."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.launch import Mpi
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.rendering.scheduler.signals import given_lead
from mpistrat.sites.schema import Site
from mpistrat.sites.tables import Limit

__all__ = ["notices_of"]


def notices_of(site: Site, options: Options, layout: Layout, mpi: Mpi) -> tuple[str, ...]:
    """Return what was chosen for the user, and what may be wrong, one line each."""
    return (
        *_of_mpi(site, options, mpi),
        *_of_cpus(site, options, layout),
        *_of_gpus(options, layout),
        *_of_time(site, options, layout),
        *_of_disk(site, options),
        *_of_requeue(site, options),
    )


def _of_mpi(site: Site, options: Options, mpi: Mpi) -> Iterator[str]:
    if options.mpi is not None:
        return
    if mpi.launcher:
        chosen = f"--mpi={mpi.type}" if mpi.type else mpi.launcher
        stated = site.launcher.mpi
        instead = f", where {site.name} states --mpi={stated.value}" if stated else ""
        is_same = stated is not None and stated.value == mpi.type
        yield f"{chosen}{'' if is_same else instead}: {mpi.reason}"
    elif site.launcher.command.value == "srun" and not site.launcher.mpi:
        reason = mpi.reason or "no MPI library was looked for"
        yield (
            f"no --mpi is in the script, srun takes the default of its Slurm ({reason});"
            " `srun --mpi=list` there names others, for --mpi"
        )


def _of_cpus(site: Site, options: Options, layout: Layout) -> Iterator[str]:
    is_told = options.cpus_per_task is not None or site.tasks.cpus_per_task is not None
    if not is_told and layout.cpus_per_task == 1 and site.launcher.command.value != "ibrun":
        yield f"{site.name} states no CPUs of a rank: each gets 1; --cpus-per-task gives more"


def _of_gpus(options: Options, layout: Layout) -> Iterator[str]:
    ranks, gpus = layout.tasks_per_node, layout.gpus
    if ranks > gpus > 0 and options.strategy is not Strategy.PARAMETER_SERVER:
        yield (
            f"{ranks} ranks of a node share {gpus} GPU{'s' * (gpus > 1)}, and take turns on"
            f" {'them' if gpus > 1 else 'it'}; --tasks-per-node {gpus} gives each rank its own"
        )


def _of_time(site: Site, options: Options, layout: Layout) -> Iterator[str]:
    if layout.duration_s is None:
        yield "no --time: the job gets the scheduler's default"
        return
    is_told = options.strategy is not Strategy.SCALING and options.signal is None
    if is_told and site.scheduler == "slurm" and walltime.lead_s(300, layout.duration_s) is None:
        yield f"a job of {layout.duration_s} s is not told of its end: it is too short for that"
    lead_s = given_lead(options)
    if lead_s and walltime.lead_s(lead_s, layout.duration_s) != lead_s:
        yield (
            f"--signal {options.signal}: a job of {layout.duration_s} s may get it after"
            f" {walltime.first_told_s(lead_s, layout.duration_s)} s, and runs no longer than that"
        )
    default = site.batch.default_partition
    partition = options.partition or (default.value if default else None)
    for limit in site.walltime.limits:
        if limit.partition == partition and _concerns(limit, layout.nodes):
            longest_s = walltime.seconds(limit.value)
            if layout.duration_s > longest_s:
                yield (
                    f"--time {options.time}: {partition} takes jobs of at most {limit.value}"
                    f" ({site.source_of(limit)})"
                )


def _concerns(limit: Limit, nodes: int) -> bool:
    return (limit.min_nodes or 1) <= nodes <= (limit.max_nodes or nodes)


def _of_disk(site: Site, options: Options) -> Iterator[str]:
    local = site.storage.node_local
    if options.stage_environment is None:
        return
    if local is None:
        yield f"{site.name} states no disk of the nodes: the environment is staged to /tmp"
    elif local.kind == "ram":
        yield f"{local.value} is memory of the job: the environment takes some of it"


def _of_requeue(site: Site, options: Options) -> Iterator[str]:
    flags = [line.value for line in site.batch.lines]
    if "--no-requeue" in flags and "--requeue" not in options.directives:
        yield (
            f"jobs on {site.name} have --no-requeue: one that was told to save is not started"
            " again; --directive=--requeue asks for it"
        )
