"""Check each rank's GPU against the site's map of local ranks to GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.gpus.seen import Seen, bound, seen
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere
from mpistrat.errors import ClusterError

__all__ = ["CHECK", "judge"]


def judge(facts: Mapping[int, Seen], job: Job) -> Verdict:
    """Find ranks of full nodes, seeing all GPUs, that do not use the one of the map."""
    site = site_of(job)
    gpus = site.binding.gpu_of_local_rank
    if gpus is None:
        raise NotHere(f"the file of {site.name} has no map of GPUs")
    size = len(gpus.value)
    full = [
        rank
        for ranks in job.nodes.values()
        for rank in ranks
        if len(ranks) == size and rank in facts and len(facts[rank].gpus) == size
    ]
    if not full:
        raise NotHere(f"the map of GPUs is for {size} ranks that see {size} GPUs")
    try:
        own = bound(facts, job)
    except ClusterError:
        raise NotHere("the GPUs cannot be dealt out to the ranks") from None
    used = {rank: [facts[rank].gpus.index(gpu) for gpu in own[rank]] for rank in full}
    wrong = [rank for rank in full if used[rank] != [gpus.value[job.local_rank(rank)]]]
    value = f"{len(full) - len(wrong)} of {len(full)} ranks as in the map"
    if not wrong:
        return Verdict(value)
    rank = wrong[0]
    order = ",".join(map(str, gpus.value))
    return Verdict(
        value,
        problems=(
            warning(
                f"{job.who(wrong)}: rank {rank} uses GPU {', '.join(map(str, used[rank]))}",
                f"GPU {gpus.value[job.local_rank(rank)]}, as the site's file says of local rank"
                f" {job.local_rank(rank)}" + (f": {gpus.reason}" if gpus.reason else ""),
                "deal the GPUs out in the site's order",
                f"export MPISTRAT_GPU_ORDER={order}",
            ),
        ),
    )


CHECK = Check(
    name="site.gpu_map",
    title="map of GPUs",
    source="the site's file, [binding]",
    measure=seen,
    judge=judge,
)
