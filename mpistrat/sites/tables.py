"""The tables of a site file (slurm/SITES.md); a key that no source states is left out."""

from __future__ import annotations

from typing import Literal

from mpistrat.sites.sourced import (
    Directive,
    Environment,
    Line,
    ModuleCommand,
    Name,
    QuotedText,
    ShellWords,
    Sourced,
    Table,
    Time,
)

__all__ = [
    "Batch",
    "Binding",
    "Container",
    "Fallback",
    "Launcher",
    "Limit",
    "Modules",
    "Network",
    "Node",
    "NodeLocal",
    "Nominal",
    "Signal",
    "Storage",
    "Tasks",
    "Walltime",
]


class Node(Table):
    """The machine's nodes of the kind that the file is about."""

    nodes_total: Sourced[int] | None = None
    gpus: Sourced[int] | None = None
    gpu_model: Sourced[Line] | None = None
    gpu_memory_gb: Sourced[int] | None = None
    sockets: Sourced[int] | None = None
    numa_domains: Sourced[int] | None = None
    cores: Sourced[int] | None = None
    usable_cores: Sourced[int] | None = None  # where the system keeps some for itself
    threads_per_core: Sourced[int] | None = None
    memory_gb: Sourced[int] | None = None


class Tasks(Table):
    """Ranks of a full node; CPUs are counted as Slurm does there: cores or hardware threads."""

    per_node: Sourced[int] | None = None
    cpus_per_task: Sourced[int] | None = None
    omp_threads: Sourced[int] | None = None


class Batch(Table):
    """Directives of the scheduler, without ``#SBATCH`` or ``#PBS`` before them.

    ``lines`` may hold {account}, {partition}, {nodes} and {walltime}; for Slurm they are what
    comes besides --nodes, --ntasks-per-node, --cpus-per-task, --time, --account and --partition,
    for PBS Pro they are all directives. ``gpu_flag`` asks for all GPUs of the nodes; it may hold
    {gpus}, the number of the job's GPUs, and is None where nodes come with their GPUs.
    ``required`` and ``forbidden`` name options, without values: those without which the site
    refuses a job, whether they are among ``lines`` or the user has to give them, and those with
    which it does.
    """

    lines: tuple[Sourced[Directive], ...] = ()
    gpu_flag: Sourced[Directive] | None = None
    required: tuple[Sourced[Directive], ...] = ()
    forbidden: tuple[Sourced[Directive], ...] = ()
    default_partition: Sourced[Line] | None = None
    partitions: tuple[Sourced[Line], ...] = ()


class Launcher(Table):
    """The command that starts the ranks.

    ``flags`` may hold {nodes}, {tasks}, {tasks_per_node} and {cpus_per_task}. ``mpi`` is for
    ``srun --mpi=``; where it is left out, the site's documents pass none.
    """

    command: Sourced[Literal["srun", "ibrun", "mpiexec", "mpirun"]]
    flags: tuple[Sourced[ShellWords], ...] = ()
    mpi: Sourced[ShellWords] | None = None
    mpi_library: Sourced[Line] | None = None
    rank_variable: Sourced[Name] | None = None
    local_rank_variable: Sourced[Name] | None = None


class Binding(Table):
    """GPUs and CPUs of the ranks of a node, in the order of their local ranks.

    In ``full_view`` each rank sees all GPUs and takes its own; in ``isolated`` the launcher shows
    each rank one. ``mode`` is the site's usual one; each mode has the flags that the launcher
    needs for it. ``full_node_flags`` and the two maps are for nodes with ``tasks.per_node`` ranks
    that no other job shares.
    """

    mode: Sourced[Literal["full_view", "isolated"]] | None = None
    full_view_flags: tuple[Sourced[ShellWords], ...] = ()
    isolated_flags: tuple[Sourced[ShellWords], ...] = ()
    full_node_flags: tuple[Sourced[ShellWords], ...] = ()
    gpu_of_local_rank: Sourced[tuple[int, ...]] | None = None
    cpus_of_local_rank: Sourced[tuple[str, ...]] | None = None  # lists such as "0-6,64-70"
    visible_variable: (
        Sourced[Literal["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"]] | None
    ) = None


class Modules(Table):
    """Commands that come before all others: ``module load ...``, ``module use ...``."""

    lines: tuple[Sourced[ModuleCommand], ...] = ()


class Fallback(Table):
    """Another environment, for a case that ``when`` names: ``render --fallback``."""

    when: Sourced[Line]
    unset: tuple[Sourced[Name], ...] = ()
    set: Environment


class Network(Table):
    """What connects nodes; ``host_suffix`` makes a host's name that of its fast interface."""

    kind: Sourced[Line] | None = None
    interfaces: Sourced[tuple[Line, ...]] | None = None
    host_suffix: Sourced[Line] | None = None


class NodeLocal(Sourced[QuotedText]):
    """A folder that each node has for itself; it is there if the directive ``needs`` is given.

    What is in ``ram`` counts against the job's memory; ``kind`` is None if no source tells.
    """

    kind: Literal["disk", "ram"] | None = None
    needs: Directive | None = None
    size_gb: int | None = None


class Storage(Table):
    """Folders; ``caches`` is where files that programs build for themselves may go."""

    scratch: Sourced[QuotedText] | None = None
    purge: Sourced[Line] | None = None
    node_local: NodeLocal | None = None
    caches: Sourced[QuotedText] | None = None


class Limit(Sourced[Time]):
    """Longest time of a partition, queue or QOS, for jobs of so many nodes."""

    partition: Line
    min_nodes: int | None = None
    max_nodes: int | None = None


class Walltime(Table):
    """Times of jobs; ``default`` is taken by the scheduler where a job states none."""

    default: Sourced[Time] | None = None
    limits: tuple[Limit, ...] = ()


class Container(Table):
    """The container runtime, its options, and what it needs from the host."""

    runtime: Sourced[Literal["apptainer", "singularity", "shifter", "pyxis", "container-engine"]]
    flags: tuple[Sourced[ShellWords], ...] = ()
    binds: tuple[Sourced[QuotedText], ...] = ()
    modules: tuple[Sourced[ModuleCommand], ...] = ()
    environment: Environment


class Signal(Table):
    """How a job is told that it ends, and whether it is started again.

    ``flag`` is ``--signal=USR1@300`` where it is left out. ``requeue`` tells whether the site
    starts jobs again by default, ``requeue_flag`` is the directive that asks for it.
    """

    flag: Sourced[Directive] | None = None
    to: Sourced[Literal["steps", "batch"]] | None = None
    requeue: Sourced[bool] | None = None
    requeue_flag: Sourced[Directive] | None = None
    preempts: Sourced[Line] | None = None


class Nominal(Table):
    """What two full nodes reach in an all-reduce: time of 8 B, bus bandwidth of 64 MiB."""

    latency_us: Sourced[float] | None = None
    bandwidth_gb_s: Sourced[float] | None = None
