"""Check each rank's CPU mask against the site's map of local ranks to CPUs."""

from __future__ import annotations

from collections.abc import Mapping

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere
from mpistrat.system.cpus import cores
from mpistrat.system.number_ranges import ranges, read_ranges

__all__ = ["CHECK", "judge"]


def _measure(_: Here) -> frozenset[int]:
    return cores.usable()


def judge(facts: Mapping[int, frozenset[int]], job: Job) -> Verdict:
    """Find ranks of full nodes that may run on CPUs outside of their part of the map."""
    maps = site_of(job).binding.cpus_of_local_rank
    if maps is None:
        raise NotHere(f"the file of {site_of(job).name} has no map of CPUs")
    size = len(maps.value)
    full = [rank for ranks in job.nodes.values() if len(ranks) == size for rank in ranks]
    if not full:
        raise NotHere(f"the map of CPUs is for {size} ranks a node")
    wrong = [
        rank
        for rank in full
        if rank in facts and not facts[rank] <= read_ranges(maps.value[job.local_rank(rank)])
    ]
    value = f"{len(full) - len(wrong)} of {len(full)} ranks as in the map"
    if not wrong:
        return Verdict(value)
    rank = wrong[0]
    masks = ",".join(hex(sum(1 << cpu for cpu in read_ranges(text))) for text in maps.value)
    return Verdict(
        value,
        problems=(
            warning(
                f"{job.who(wrong)}: rank {rank} may run on CPUs {ranges(facts[rank])}",
                f"{maps.value[job.local_rank(rank)]}, as the site's file says of local rank"
                f" {job.local_rank(rank)}",
                "bind by the site's map",
                srun_line(job, f"--cpu-bind=mask_cpu:{masks}")
                if job.launcher.kind == "srun"
                else "",
            ),
        ),
    )


CHECK = Check(
    name="site.cpu_map",
    title="map of CPUs",
    source="the site's file, [binding]",
    measure=_measure,
    judge=judge,
)
