"""Check that the ranks of a node see each other's GPUs, which direct copies between them need."""

from __future__ import annotations

from collections.abc import Mapping

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.gpus.seen import Seen, seen
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "judge"]


def judge(facts: Mapping[int, Seen], job: Job) -> Verdict:
    """Find nodes whose ranks together see more GPUs than each of them."""
    if not any(one.gpus for one in facts.values()):
        raise NotHere("no GPU")
    if all(len(ranks) == 1 for ranks in job.nodes.values()):
        raise NotHere("one rank a node")
    hidden = {}
    for host, ranks in job.nodes.items():
        here = {rank: facts[rank] for rank in ranks if rank in facts}
        all_of_node = {gpu for one in here.values() for gpu in one.gpus}
        if any(len(one.gpus) < len(all_of_node) for one in here.values()):
            hidden[host] = len(all_of_node)
    count = len(facts[min(facts)].gpus)
    if not hidden:
        return Verdict(f"each rank sees all {count} GPUs of the ranks on its node")
    host, number = next(iter(hidden.items()))
    mode = job.site.binding.mode if job.site else None
    value = f"each rank sees {count} of {number} GPUs"
    if mode is not None and mode.value == "isolated":
        return Verdict(f"{value}, as at this site")
    return Verdict(
        value,
        problems=(
            warning(
                f"a rank of {host} sees {count} GPU{'s' * (count != 1)} of the {number} that are"
                " used there",
                f"all {number}: NCCL and mpistrat copy directly only to GPUs that they see",
                "let each rank see all GPUs of the node, and choose by its local rank, as mpistrat"
                " does",
                _line(job, number),
            ),
        ),
    )


def _line(job: Job, number: int) -> str:
    if job.launcher.kind != "srun":
        return "unset CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES"
    flag = job.site.batch.gpu_flag if job.site else None
    return srun_line(job, flag.value if flag else f"--gpus-per-node={number}", "--gpu-bind=none")


CHECK = Check(
    name="gpus.peers_visible",
    title="GPUs of other ranks",
    source="NVIDIA/nccl#1066; BLAST-WarpX/warpx#6382",
    measure=seen,
    judge=judge,
)
