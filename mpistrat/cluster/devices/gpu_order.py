"""Deal out the GPUs of a node to its ranks, in the order that ``MPISTRAT_GPU_ORDER`` sets.

Some nodes number their GPUs against their CPUs: there the GPU next to a rank's CPUs is not the one
of its local rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mpistrat import config
from mpistrat.errors import ClusterError
from mpistrat.system.log import get_logger, warn_once

if TYPE_CHECKING:
    from mpistrat.cluster.devices.gpu_binding import SeenGpus

__all__ = ["are_apart", "check", "dealt", "is_full_view", "warn_unused"]


def are_apart(sets: Sequence[tuple[str, ...]]) -> bool:
    """Tell whether no GPU is seen by two ranks."""
    every = [bus for buses in sets for bus in set(buses)]
    return len(every) == len(set(every))


def is_full_view(sets: Sequence[tuple[str, ...]]) -> bool:
    """Tell whether the ranks of a node have to share out GPUs that they all see."""
    return len(sets) > 1 and not are_apart(sets)


def dealt(buses: tuple[str, ...], ranks: int, local_rank: int) -> tuple[str, ...]:
    """Return the GPUs of one of the ranks of a node that all see the same ones, `buses`."""
    order = config.gpu_order()
    if len(order) == ranks:
        return (buses[order[local_rank]],)
    buses = tuple(buses[index] for index in order) or buses
    count = len(buses)
    if count < ranks:
        return buses[local_rank * count // ranks :][:1]
    each = count // ranks
    return buses[local_rank * each : (local_rank + 1) * each]


def check(everyone: Sequence[SeenGpus]) -> None:
    """Raise `ClusterError` if the order does not fit the ranks and GPUs of a node."""
    order = config.gpu_order()
    for host, sets in _by_node(everyone) if order else ():
        if is_full_view(sets):
            _check_node(order, host, len(sets), len(sets[0]))


def _check_node(order: tuple[int, ...], host: str, ranks: int, gpus: int) -> None:
    is_by_rank = len(order) == ranks and max(order) < gpus
    if not is_by_rank and sorted(order) != list(range(gpus)):
        raise ClusterError(
            f"MPISTRAT_GPU_ORDER={','.join(map(str, order))}, but node {host} has {ranks} ranks"
            f" that see {gpus} GPUs; expected {ranks} indices below {gpus}, one for each rank, or"
            f" each index from 0 to {gpus - 1} once; unset it or fix it"
        )


def warn_unused(everyone: Sequence[SeenGpus]) -> None:
    """Log the nodes where the order is set and has no effect. **Local.**"""
    if not config.gpu_order():
        return
    hosts = [host for host, sets in _by_node(everyone) if any(sets) and not is_full_view(sets)]
    if hosts:
        text = (
            f"MPISTRAT_GPU_ORDER is not used on {', '.join(hosts[:4])}: no two ranks there see the"
            " same GPUs, so the launcher has bound them, or there is one rank; use the launcher's"
            " option for their order, such as srun --gpu-bind=map_gpu:3,2,1,0"
        )
        warn_once(get_logger(__name__), "GPU order", text)


def _by_node(everyone: Sequence[SeenGpus]) -> Iterable[tuple[str, list[tuple[str, ...]]]]:
    nodes: dict[str, list[tuple[str, ...]]] = {}
    for one in everyone:
        nodes.setdefault(one.host, []).append(one.buses)
    return nodes.items()
