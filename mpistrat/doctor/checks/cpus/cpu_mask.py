"""Check each rank's CPU mask: its own cores, as many as asked for, near each other, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.imports import probe
from mpistrat.doctor.job.command_line import mpirun_line, srun_line
from mpistrat.doctor.job.job import Job
from mpistrat.system.cpus import cores
from mpistrat.system.cpus.numa import numa_domains
from mpistrat.system.number_ranges import ranges, read_ranges

__all__ = ["CHECK", "Mask", "judge"]

_SYSTEM = Path("/sys/devices/system")
Cpus = frozenset[int]


@dataclass(frozen=True)
class Mask:
    """The CPUs of one rank.

    Attributes
    ----------
    start
        Those that the process was started with.
    now
        Those that are left after MPI and numpy were loaded and started.
    online
        Those of the machine that are online.
    numa
        Those of each NUMA node.
    asked
        SLURM_CPUS_PER_TASK, where the step has it.
    imported
        The CPUs that are left after each import in a child process, on the first rank of a node.
    """

    start: Cpus
    now: Cpus
    online: Cpus
    numa: tuple[Cpus, ...] = ()
    asked: int | None = None
    imported: tuple[tuple[str, Cpus], ...] = ()


def _measure(here: Here) -> Mask:
    import numpy  # noqa: F401, ICN001 - it loads BLAS, which may bind threads

    online = _read(_SYSTEM / "cpu" / "online")
    return Mask(
        start=here.start_mask,
        now=cores.usable(),
        online=online or here.start_mask,
        numa=tuple(numa_domains().values()),
        asked=here.number("SLURM_CPUS_PER_TASK"),
        imported=_imported(here),
    )


def _imported(here: Here) -> tuple[tuple[str, Cpus], ...]:
    if not here.is_first_of_node:
        return ()
    imports = probe(("numpy", *here.options.imports), here.start_mask, here.options.measure_s)
    return tuple((done.name, done.mask) for done in imports)


def _read(file: Path) -> Cpus:
    try:
        return read_ranges(file.read_text())
    except (OSError, ValueError):
        return frozenset()


def judge(facts: Mapping[int, Mask], job: Job) -> Verdict:
    """Compare the masks of each node's ranks with each other, and with what was asked for."""
    problems = [*_narrowed(facts, job), *_narrowed_by_import(facts), *_too_few(facts, job)]
    for ranks in job.nodes.values():
        here = [rank for rank in ranks if rank in facts]
        problems += _shared(here, facts, job) or _far_apart(here, facts, job)
    return Verdict(_value(facts), problems=tuple(problems))


def _value(facts: Mapping[int, Mask]) -> str:
    masks = {mask.now for mask in facts.values()}
    if len(masks) == 1:
        mask, online = next(iter(masks)), next(iter(facts.values())).online
        bound = "not bound" if mask == online else "bound"
        return f"CPUs {ranges(mask)} on every rank, {bound}"
    counts = sorted({len(mask) for mask in masks})
    least, most = counts[0], counts[-1]
    if least == most:
        return f"{most} CPU{'s' * (most > 1)} a rank"
    return f"{least} to {most} CPUs a rank"


def _narrowed(facts: Mapping[int, Mask], job: Job) -> Iterator[Problem]:
    ranks = [rank for rank, mask in facts.items() if mask.now != mask.start]
    if not ranks:
        return
    mask = facts[ranks[0]]
    yield failure(
        f"the start of MPI or numpy changed the mask of {job.who(ranks)} from"
        f" {ranges(mask.start)} to {ranges(mask.now)}",
        "the mask that the launcher gave",
        "turn off the binding by the library: MV2_ENABLE_AFFINITY=0 (MVAPICH), I_MPI_PIN=0 (Intel"
        " MPI), OMP_PROC_BIND=false, unset KMP_AFFINITY and GOMP_CPU_AFFINITY",
    )


def _narrowed_by_import(facts: Mapping[int, Mask]) -> Iterator[Problem]:
    for mask in facts.values():
        before = mask.start
        for name, after in mask.imported:
            if after != before:
                yield failure(
                    f"import {name} changes the mask from {ranges(before)} to {ranges(after)}",
                    "the mask that the launcher gave",
                    f"import {name} where OMP_PROC_BIND=false is set, KMP_AFFINITY and"
                    " GOMP_CPU_AFFINITY are not; or restore the mask after it by"
                    " os.sched_setaffinity",
                )
                return
            before = after


def _too_few(facts: Mapping[int, Mask], job: Job) -> Iterator[Problem]:
    ranks = [rank for rank, mask in facts.items() if mask.asked and len(mask.now) < mask.asked]
    if not ranks:
        return
    mask = facts[ranks[0]]
    fix = "srun does not take it over in Slurm 22.05 and 23.02: state it on its command line"
    line = srun_line(job, f"--cpus-per-task={mask.asked} --cpu-bind=cores")
    if job.launcher.kind != "srun":
        fix = "mpirun binds by its own rules: let the ranks keep the node's CPUs"
        line = mpirun_line(job, "mpirun --bind-to none")
    yield failure(
        f"{job.who(ranks)} may run on {len(mask.now)} CPU{'s' * (len(mask.now) > 1)}"
        f" ({ranges(mask.now)})",
        f"{mask.asked}, as SLURM_CPUS_PER_TASK says",
        fix,
        line,
    )


def _shared(ranks: Sequence[int], facts: Mapping[int, Mask], job: Job) -> list[Problem]:
    """Find ranks of a node that have CPUs in common, though others are free."""
    union: Cpus = frozenset().union(*(facts[rank].now for rank in ranks))
    if len(ranks) < 2 or sum(len(facts[rank].now) for rank in ranks) == len(union):
        return []
    online = facts[ranks[0]].online
    if all(facts[rank].now == union for rank in ranks) and (
        len(ranks) <= len(union) or union == online
    ):
        return list(_unbound(ranks, union, facts, job))
    sharing = [r for r in ranks if any(facts[r].now & facts[o].now for o in ranks if o != r)]
    free = f"; CPUs {ranges(online - union)} are in no mask" if online - union else ""
    return [
        failure(
            f"{job.who(sharing)} may run on the same CPUs {ranges(union)}{free}",
            "CPUs of its own for each rank",
            "they take turns: bind each rank to cores of its own, or none of them",
            _binding_line(job),
        )
    ]


def _unbound(
    ranks: Sequence[int], union: Cpus, facts: Mapping[int, Mask], job: Job
) -> Iterator[Problem]:
    """Find what an unbound job loses: cores for each rank, or memory near its cores."""
    if len(ranks) > len(union):
        yield warning(
            f"{len(ranks)} ranks of {job.hosts[ranks[0]]} share {len(union)} CPUs",
            "a CPU for each rank at least",
            "start fewer ranks on the node; with Open MPI set mpi_yield_when_idle=1 until then",
        )
    elif sum(bool(cpus & union) for cpus in facts[ranks[0]].numa) > 1:
        yield warning(
            f"no rank of {job.hosts[ranks[0]]} is bound: all may run on CPUs {ranges(union)} of"
            " several NUMA nodes",
            "cores of one NUMA node for each rank",
            "bind the ranks, or their memory is far from their cores",
            _binding_line(job),
        )


def _far_apart(ranks: Sequence[int], facts: Mapping[int, Mask], job: Job) -> list[Problem]:
    """Find ranks that are bound to cores of several NUMA nodes, though one would do."""
    wide = []
    for rank in ranks:
        mask = facts[rank]
        used = [cpus for cpus in mask.numa if cpus & mask.now]
        if len(used) > 1 and len(ranks) > 1 and len(mask.now) <= max(map(len, used)):
            wide.append(rank)
    if not wide:
        return []
    return [
        warning(
            f"{job.who(wide)} may run on cores of several NUMA nodes:"
            f" {ranges(facts[wide[0]].now)}",
            "cores of one NUMA node for each rank",
            "bind by cores or by the site's map",
            _binding_line(job),
        )
    ]


def _binding_line(job: Job) -> str:
    if job.launcher.kind == "srun":
        maps = job.site.binding.cpus_of_local_rank if job.site else None
        if maps is None:
            return srun_line(job, "--cpus-per-task=$SLURM_CPUS_PER_TASK --cpu-bind=cores")
        masks = (sum(1 << cpu for cpu in read_ranges(text)) for text in maps.value)
        return srun_line(job, "--cpu-bind=mask_cpu:" + ",".join(map(hex, masks)))
    return mpirun_line(job, "mpirun --bind-to core")


CHECK = Check(
    name="cpus.cpu_mask",
    title="CPU masks",
    source="pytorch/pytorch#101850; redmod-team/profit#179",
    measure=_measure,
    judge=judge,
)
