"""`Seen`: the GPUs that a rank sees, and which of them are its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.devices.gpu_binding import SeenGpus, all_bound_gpus
from mpistrat.doctor.gpus.driver import Gpu, installed, visible
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.not_here import NotHere
from mpistrat.system.cpus import cores

__all__ = ["Seen", "bound", "seen"]


@dataclass(frozen=True)
class Seen:
    """The GPUs that one rank sees.

    Attributes
    ----------
    gpus
        In the order of their indices.
    installed
        GPUs of the node, visible or not; 0 where it is not known.
    cpus
        The CPUs that the rank may run on.
    """

    gpus: tuple[Gpu, ...]
    installed: int = 0
    cpus: frozenset[int] = frozenset()


def seen(_: Here) -> Seen:
    """Return the GPUs that this rank sees.

    Raises
    ------
    NotHere
        This machine has no driver of GPUs.
    """
    try:
        gpus = visible()  # () on a node without GPUs is a finding, if others have some
    except OSError:
        raise NotHere("the driver of GPUs fails") from None
    return Seen(gpus, installed(), cores.usable())


def bound(facts: Mapping[int, Seen], job: Job) -> dict[int, tuple[Gpu, ...]]:
    """Return the GPUs that the strategies give to each rank.

    Raises
    ------
    NotHere
        No rank sees any GPU.
    ClusterError
        The ranks of a node see some GPUs in common, but not all, or only some ranks see any.
    """
    if not any(one.gpus for one in facts.values()):
        raise NotHere("no GPU")
    ranks = sorted(facts)
    everyone = [SeenGpus(job.hosts[r], tuple(_key(gpu) for gpu in facts[r].gpus)) for r in ranks]
    return {
        rank: tuple(facts[rank].gpus[i] for i in indices)
        for rank, indices in zip(ranks, all_bound_gpus(everyone), strict=True)
    }


def _key(gpu: Gpu) -> str:
    return f"{gpu.bus} {gpu.uuid}".strip()
