"""Check that each rank's GPU is near the CPUs that it may run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.gpus.driver import Gpu
from mpistrat.doctor.gpus.seen import Seen, bound, seen
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.not_here import NotHere
from mpistrat.errors import ClusterError
from mpistrat.system.number_ranges import ranges, read_ranges

__all__ = ["CHECK", "judge"]


def judge(facts: Mapping[int, Seen], job: Job) -> Verdict:
    """Compare the CPUs near each rank's GPUs with its mask."""
    try:
        own = bound(facts, job)
    except ClusterError:
        raise NotHere("the GPUs cannot be dealt out to the ranks") from None
    far = {rank: gpu for rank, gpus in own.items() for gpu in gpus if _is_far(gpu, facts[rank])}
    if not far:
        return Verdict("each rank's GPU is near its CPUs")
    rank, gpu = next(iter(far.items()))
    node = job.nodes[job.hosts[rank]]
    order = _order([facts[r] for r in node if r in facts])
    fix = "give each rank the GPU that is near its cores"
    command = f"export MPISTRAT_GPU_ORDER={','.join(map(str, order))}" if order else ""
    return Verdict(
        f"{len(far)} of {len(own)} ranks use a GPU that is far from their CPUs",
        problems=(
            warning(
                f"{job.who(far)}: the GPU {gpu.bus} of rank {rank} is near CPUs {gpu.cpus}, the"
                f" rank may run on {ranges(facts[rank].cpus)}",
                "a GPU near the rank's CPUs, else copies cross the link between processors",
                fix if order else f"{fix}, by srun --gpu-bind=closest or by the site's map",
                command,
            ),
        ),
        corrections={"binding.gpu_of_local_rank": order} if order else None,
    )


def _is_far(gpu: Gpu, rank: Seen) -> bool:
    near = read_ranges(gpu.cpus)
    return bool(near) and not near & rank.cpus


def _order(ranks: Sequence[Seen]) -> tuple[int, ...]:
    """Return the index of the GPU nearest to each local rank, or () where there is none."""
    order: list[int] = []
    for rank in ranks:
        overlaps = [
            (-len(read_ranges(gpu.cpus) & rank.cpus), index)
            for index, gpu in enumerate(rank.gpus)
            if index not in order
        ]
        best = min(overlaps, default=(0, 0))
        if best[0] == 0:
            return ()
        order.append(best[1])
    return tuple(order)


CHECK = Check(
    name="gpus.near_cpus",
    title="GPU near CPUs",
    source="BLAST-WarpX/warpx (Perlmutter); ALCF, polaris (reversed order)",
    measure=seen,
    judge=judge,
)
