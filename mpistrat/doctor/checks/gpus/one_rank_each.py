"""Check that no two ranks use the same GPU."""

from __future__ import annotations

from collections.abc import Mapping

from mpistrat.doctor.check import Check, Verdict, failure
from mpistrat.doctor.gpus.driver import Gpu
from mpistrat.doctor.gpus.seen import Seen, bound, seen
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job
from mpistrat.errors import ClusterError

__all__ = ["CHECK", "judge"]


def judge(facts: Mapping[int, Seen], job: Job) -> Verdict:
    """Find GPUs that the strategies would give to several ranks."""
    expected = "GPUs of its own for each rank"
    try:
        own = bound(facts, job)
    except ClusterError as error:
        return Verdict(
            "cannot be dealt out",
            problems=(failure(str(error), expected, "start all ranks of a node alike"),),
        )
    users: dict[tuple[str, Gpu], list[int]] = {}
    for rank, gpus in own.items():
        for gpu in gpus:
            users.setdefault((job.hosts[rank], gpu), []).append(rank)
    shared = {key: ranks for key, ranks in users.items() if len(ranks) > 1}
    value = f"{len(users)} GPUs of {len(job.nodes)} node{'s' * (len(job.nodes) > 1)}"
    if not shared:
        return Verdict(f"{value}, each used by one rank")
    (_, gpu), ranks = next(iter(shared.items()))
    number = len(facts[ranks[0]].gpus)
    return Verdict(
        f"{value}, {len(shared)} of them used by several ranks",
        problems=(
            failure(
                f"{job.who(ranks)} use the GPU {gpu.bus}"
                + (f", and {len(shared) - 1} more are shared" if len(shared) > 1 else ""),
                expected,
                f"a rank sees {number} GPU{'s' * (number != 1)}: start as many ranks a node as it"
                " has GPUs, and let each see all (--gpus-per-node) or one of its own"
                " (--gpus-per-task=1)",
                _line(job),
            ),
        ),
    )


def _line(job: Job) -> str:
    if job.launcher.kind != "srun":
        return "unset CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES"
    flag = job.site.batch.gpu_flag if job.site else None
    return srun_line(job, flag.value if flag else "--gpus-per-task=1")


CHECK = Check(
    name="gpus.one_rank_each",
    title="one rank a GPU",
    source="CSCS, running/slurm.md (compute mode default hides it)",
    measure=seen,
    judge=judge,
)
