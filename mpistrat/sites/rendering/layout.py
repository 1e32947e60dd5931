"""Choose how many nodes, ranks, CPUs and GPUs a job has, or say which options do not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpistrat.errors import UsageError
from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options, Strategy, sizes_of
from mpistrat.sites.schema import Site

__all__ = ["Layout", "layout_of"]

_ONE_NODE = (Strategy.ONE_DEVICE, Strategy.CENTRAL_STORAGE)
_ONE_RANK_A_NODE = (Strategy.ONE_DEVICE, Strategy.TPU_SLICES, Strategy.ARRAY)


@dataclass(frozen=True)
class Layout:
    """The numbers of a job.

    Attributes
    ----------
    sizes
        Ranks of each run of the scaling suite; else empty.
    gpus
        GPUs that the job uses on each node.
    tasks, cpus
        The lines that say so, with their origin: ranks of a node, and CPUs of a rank.
    duration_s
        Time of the job, where it is given.
    """

    nodes: int
    tasks_per_node: int
    ranks: int
    cpus_per_task: int
    gpus: int
    tasks: Line
    cpus: Line
    sizes: tuple[int, ...] = ()
    duration_s: int | None = None

    @property
    def is_even(self) -> bool:
        """Whether all nodes have as many ranks."""
        return self.ranks == self.nodes * self.tasks_per_node


def layout_of(site: Site, options: Options) -> Layout:
    """Return the numbers of a job. **Local.**

    Raises
    ------
    UsageError
        Options contradict each other, the strategy, or the site's nodes.
    """
    _check_strategy(options)
    gpus = _gpus(site, options)
    if options.binding is not None and not gpus:
        raise UsageError(
            f"--binding {options.binding.value} without GPUs: add --gpus N, or leave it out"
        )
    sizes = sizes_of(options.ranks) if options.ranks else ()
    tasks = _tasks(site, options, gpus, max(sizes, default=0))
    per_node = int(tasks.text)
    slots = options.nodes * per_node
    if max(sizes, default=0) > slots:
        raise UsageError(
            f"--ranks {options.ranks}: more ranks than slots, {options.nodes} nodes x {per_node}"
            f" tasks per node = {slots}; add --nodes or --tasks-per-node"
        )
    ranks = max(sizes, default=slots)
    _check_servers(options, ranks)
    cpus = _cpus(site, options, per_node)
    return Layout(
        options.nodes,
        per_node,
        ranks,
        int(cpus.text),
        gpus,
        tasks,
        cpus,
        _runs(sizes, ranks) if options.strategy is Strategy.SCALING else (),
        walltime.seconds(options.time) if options.time else None,
    )


def _check_strategy(options: Options) -> None:
    """Refuse options that this kind of job has no use for, or lacks."""
    name, is_scaling = options.strategy.value, options.strategy is Strategy.SCALING
    if options.nodes < 1:
        raise UsageError(f"--nodes {options.nodes}: expected 1 or more")
    if options.strategy in _ONE_NODE and options.nodes > 1:
        raise UsageError(f"--nodes {options.nodes}: {name} is for one node; use multi_worker")
    if options.strategy is Strategy.ONE_DEVICE and (options.tasks_per_node or 1) > 1:
        raise UsageError(
            f"--tasks-per-node {options.tasks_per_node}: one_device is one rank; use mirrored"
        )
    if options.ranks and "," in options.ranks and not is_scaling:
        raise UsageError(f"--ranks {options.ranks}: {name} takes one number; scaling takes a list")
    if (options.ps is None) == (options.strategy is Strategy.PARAMETER_SERVER):
        raise UsageError(
            f"strategy {name} and --ps {options.ps}: --ps is for parameter_server, which needs it"
        )
    if options.strategy is Strategy.ARRAY and options.array is None:
        raise UsageError("strategy array without --array: add the indices, such as --array 0-7")
    if is_scaling and options.array is not None:
        raise UsageError("--array with strategy scaling: its runs are steps of one job")


def _check_servers(options: Options, ranks: int) -> None:
    """Refuse fewer ranks than `MPIClusterResolver` needs for its roles."""
    if options.ps is None:
        return
    if options.ps < 1:
        raise UsageError(f"--ps {options.ps}: expected 1 or more parameter servers")
    if ranks < options.ps + 2:
        raise UsageError(
            f"--ps {options.ps} needs {options.ps + 2} ranks or more (a chief, a worker and"
            f" {options.ps} ps), the job has {ranks}; add --nodes or --tasks-per-node"
        )


def _gpus(site: Site, options: Options) -> int:
    if options.cpu_only and options.gpus:
        raise UsageError(f"--cpu-only and --gpus {options.gpus}: choose one")
    has = site.node.gpus
    if options.gpus is not None:
        if options.gpus < 0 or (has and options.gpus > has.value):
            most = f"0 to {has.value}, as {site.source_of(has)} states" if has else "0 or more"
            raise UsageError(f"--gpus {options.gpus}: expected {most}")
        return options.gpus
    if options.cpu_only or options.strategy is Strategy.TPU_SLICES:
        return 0
    return has.value if has else 0


def _tasks(site: Site, options: Options, gpus: int, ranks: int) -> Line:
    """Return the ranks of a node."""
    if options.tasks_per_node is not None:
        if options.tasks_per_node < 1:
            raise UsageError(f"--tasks-per-node {options.tasks_per_node}: expected 1 or more")
        return by_option("--tasks-per-node", str(options.tasks_per_node))
    if options.strategy in _ONE_RANK_A_NODE:
        return by_default("1", f"strategy {options.strategy.value} has one rank on a node")
    usual, wanted = site.tasks.per_node, math.ceil(ranks / options.nodes)
    if ranks and not (usual and wanted > usual.value):
        return by_option("--ranks", str(wanted))
    if options.gpus:
        return by_option("--gpus", str(gpus))
    if site.tasks.per_node:
        return by_site(site, site.tasks.per_node)
    if gpus and site.node.gpus:
        return by_site(site, site.node.gpus)
    raise UsageError(
        f"site {site.name} does not say how many ranks a node takes; add --tasks-per-node N"
    )


def _cpus(site: Site, options: Options, per_node: int) -> Line:
    """Return the CPUs of a rank, of which a node has enough for all its ranks."""
    told, full = site.tasks.cpus_per_task, site.tasks.per_node
    if options.cpus_per_task is not None:
        _check_cpus(site, options.cpus_per_task, per_node)
        return by_option("--cpus-per-task", str(options.cpus_per_task))
    if told and full and per_node > full.value:
        fewer = told.value * full.value // per_node
        _check_cpus(site, fewer, per_node)
        return by_site(site, told, str(fewer))
    if told:
        return by_site(site, told)
    cores = site.node.usable_cores or site.node.cores
    if cores and site.node.gpus and cores.value >= per_node:  # jobs with its GPUs have the node
        return by_site(site, cores, str(cores.value // per_node))
    return by_default("1", "a rank has one CPU; --cpus-per-task gives it more")


def _check_cpus(site: Site, cpus: int, per_node: int) -> None:
    """Refuse more CPUs than the site's file gives a node, if it says how many these are."""
    cores, threads = site.node.usable_cores or site.node.cores, site.node.threads_per_core
    told, full = site.tasks.cpus_per_task, site.tasks.per_node
    most = cores.value * (threads.value if threads else 1) if cores else 0
    if told and full:  # which may count hardware threads where the cores are known only
        most = max(most, told.value * full.value)
    if cpus < 1 or (most and cpus * per_node > most):
        of_node = f", of which a node has {most}" if most else ""
        raise UsageError(
            f"{per_node} tasks per node x {cpus} CPUs per task: expected 1 CPU or more for each"
            f"{of_node}; change --tasks-per-node or --cpus-per-task"
        )


def _runs(sizes: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """Return the sizes of the scaling suite: those given, else the powers of two and all ranks."""
    if len(sizes) > 1:
        return sizes
    powers = [2**power for power in range(ranks.bit_length()) if 2**power < ranks]
    return (*powers, ranks)
