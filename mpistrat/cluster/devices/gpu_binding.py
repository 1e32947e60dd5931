"""Choose which GPUs of its node each rank uses, from what all ranks can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat.cluster.devices import gpu_order
from mpistrat.cluster.devices.gpu_order import are_apart
from mpistrat.cluster.devices.names import canonical
from mpistrat.errors import ClusterError

__all__ = ["SeenGpus", "all_bound_gpus", "bound_devices", "bound_gpus", "idle_gpus"]

_START_ALIKE = (
    "start all ranks of a node alike: each with all of its GPUs visible (srun --gpus-per-node, no"
    " CUDA_VISIBLE_DEVICES of your own) or each with GPUs of its own (srun --gpus-per-task), or"
    " name them with devices="
)


@dataclass(frozen=True)
class SeenGpus:
    """The GPUs that one rank can see.

    Attributes
    ----------
    host
        Name of the rank's node.
    buses
        PCI address of each visible GPU, by its index; none where there is no GPU or no CuPy.
    """

    host: str
    buses: tuple[str, ...]


def bound_gpus(everyone: Sequence[SeenGpus], rank: int) -> tuple[int, ...]:
    """Return the indices of the GPUs that a rank uses unless it is told others.

    Where the ranks of a node see the same GPUs, these are dealt out by local rank, equally many
    to each; with fewer GPUs than ranks, neighbouring ranks share one. Where each rank sees GPUs
    of its own, the launcher has dealt them out, and a rank uses all that it sees.

    ``MPISTRAT_GPU_ORDER`` changes how those that all see are dealt out: with an index for each
    rank of the node it names that rank's GPU, with one for each GPU it is their order.

    Parameters
    ----------
    everyone
        What each rank can see, by rank; the same sequence on all ranks.
    rank
        The rank that is asked about.

    Returns
    -------
    tuple of int
        Indices as the rank sees them; none where no rank sees any GPU.

    Raises
    ------
    ClusterError
        Some ranks see GPUs and others none, or ranks of a node see some GPUs in common but not
        all; or ``MPISTRAT_GPU_ORDER`` does not fit them. It is the same error for every `rank`.
    """
    _check(everyone)
    gpu_order.check(everyone)
    return _own(everyone, _mates(everyone)[everyone[rank].host], rank)


def all_bound_gpus(everyone: Sequence[SeenGpus]) -> list[tuple[int, ...]]:
    """Return `bound_gpus` of all ranks, by rank. **Local.**"""
    _check(everyone)
    gpu_order.check(everyone)
    mates = _mates(everyone)
    return [_own(everyone, mates[one.host], rank) for rank, one in enumerate(everyone)]


def _mates(everyone: Sequence[SeenGpus]) -> dict[str, list[int]]:
    """Return the ranks of each node; there may be thousands."""
    found: dict[str, list[int]] = {}
    for rank, one in enumerate(everyone):
        found.setdefault(one.host, []).append(rank)
    return found


def _own(everyone: Sequence[SeenGpus], mates: list[int], rank: int) -> tuple[int, ...]:
    mine = everyone[rank]
    if not gpu_order.is_full_view([everyone[mate].buses for mate in mates]):
        return tuple(range(len(mine.buses)))
    # In the order of the node's first rank: each may see them in an order of its own.
    buses = everyone[mates[0]].buses
    given = gpu_order.dealt(buses, len(mates), mates.index(rank))
    return tuple(mine.buses.index(bus) for bus in given)


def bound_devices(everyone: Sequence[SeenGpus], rank: int, task: int) -> tuple[str, ...]:
    """Return the full names of the GPUs bound to a rank, or of one CPU where there are no GPUs.

    Parameters
    ----------
    everyone, rank
        As for `bound_gpus`, which also says what is raised.
    task
        The rank's number in device strings.
    """
    kinds = [f"GPU:{index}" for index in bound_gpus(everyone, rank)] or ["CPU:0"]
    return tuple(canonical(kind, task) for kind in kinds)


def idle_gpus(everyone: Sequence[SeenGpus]) -> dict[str, int]:
    """Return the number of GPUs that :func:`bound_gpus` leaves to nobody, by node."""
    idle = {}
    for host in dict.fromkeys(one.host for one in everyone):
        ranks = [rank for rank, one in enumerate(everyone) if one.host == host]
        seen = {bus for rank in ranks for bus in everyone[rank].buses}
        used = {everyone[rank].buses[i] for rank in ranks for i in bound_gpus(everyone, rank)}
        if seen - used:
            idle[host] = len(seen - used)
    return idle


def _check(everyone: Sequence[SeenGpus]) -> None:
    without = [rank for rank, one in enumerate(everyone) if not one.buses]
    if 0 < len(without) < len(everyone):
        hosts = sorted({everyone[rank].host for rank in without})
        raise ClusterError(
            f"ranks {without} (on {', '.join(hosts[:4])}) can see no GPU, the others can;"
            f" {_START_ALIKE}, or devices=['CPU:0'] on all"
        )
    for host, mates in _mates(everyone).items():
        seen = {rank: everyone[rank].buses for rank in mates}
        kinds = {frozenset(buses) for buses in seen.values()}
        if len(kinds) > 1 and not are_apart(list(seen.values())):
            shown = "; ".join(f"rank {rank}: {', '.join(seen[rank])}" for rank in list(seen)[:8])
            raise ClusterError(
                f"the ranks of node {host} can see some GPUs in common, but not all: {shown};"
                f" {_START_ALIKE}"
            )
