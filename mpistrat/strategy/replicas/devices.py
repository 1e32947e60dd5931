"""Find the devices of this rank's replicas: those it was told, or the GPUs bound to it.

All ranks exchange what they can see, so that they deal out the GPUs of a node alike, and what
is wrong on one rank is an error on all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mpistrat.cluster.devices import gpu_order
from mpistrat.cluster.devices.gpu_binding import SeenGpus, bound_devices, idle_gpus
from mpistrat.cluster.devices.names import named_devices
from mpistrat.cluster.topology import host_name
from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.system.log import get_logger, warn_once

__all__ = ["RankDevices", "devices_of_ranks"]

_LOG = get_logger(__name__)


@dataclass(frozen=True)
class RankDevices:
    """What one rank tells the others of its devices.

    Attributes
    ----------
    seen
        The GPUs that it can see.
    names
        Full names of the devices that it was told to use; None to choose by what it sees.
    """

    seen: SeenGpus
    names: tuple[str, ...] | None


def devices_of_ranks(
    communicator: Communicator, devices: Iterable[str] | None
) -> list[tuple[str, ...]]:
    """Return the full names of the devices of every rank's replicas, by rank. **Collective.**

    Parameters
    ----------
    communicator
        Over the ranks of the strategy.
    devices
        This rank's devices, one replica each; None for the GPUs bound to this rank
        (`mpistrat.cluster.devices.gpu_binding`), or one CPU where no rank sees a GPU.

    Raises
    ------
    UsageError, ArgumentTypeError
        On all ranks: `devices` of a rank are no device strings, or empty.
    BackendUnavailableError
        On all ranks: a GPU is not there, or CuPy to use it.
    ClusterError
        On all ranks: GPUs are wanted by None, and the ranks do not see them alike.
    """
    with communicator.checking():
        mine = _of_this_rank(devices, communicator.rank)
    everyone = [mine]
    if communicator.size > 1:
        everyone = communicator.allgather_object(mine)
    if communicator.rank == 0:
        _warn(everyone)
    return [_names(everyone, rank) for rank in range(len(everyone))]


def _of_this_rank(devices: Iterable[str] | None, rank: int) -> RankDevices:
    if devices is None:
        return RankDevices(SeenGpus(host_name(), gpu_devices.visible_buses()), None)
    names = named_devices(devices, rank)
    gpu_devices.require(names)
    has_gpus = any(gpu_devices.gpu_index(name) is not None for name in names)
    buses = gpu_devices.visible_buses() if has_gpus else ()  # CuPy stays unused without GPUs
    return RankDevices(SeenGpus(host_name(), buses), names)


def _names(everyone: Sequence[RankDevices], rank: int) -> tuple[str, ...]:
    told = everyone[rank].names
    if told is not None:
        return told
    asking = [other for other, one in enumerate(everyone) if one.names is None]
    seen = [everyone[other].seen for other in asking]
    return bound_devices(seen, asking.index(rank), rank)


def _warn(everyone: Sequence[RankDevices]) -> None:
    """Log GPUs that nobody uses, and GPUs that ranks were told to share while others are idle."""
    asking = [one.seen for one in everyone if one.names is None]
    gpu_order.warn_unused(asking)
    for host, count in idle_gpus(asking).items():
        text = f"{count} GPUs of node {host} are left unused; start as many ranks as it has GPUs"
        warn_once(_LOG, f"idle {host}", text)
    for host in dict.fromkeys(one.seen.host for one in everyone):
        _warn_shared(host, [one for one in everyone if one.seen.host == host and one.names])


def _warn_shared(host: str, told: Sequence[RankDevices]) -> None:
    used = [
        one.seen.buses[index]
        for one in told
        for index in map(gpu_devices.gpu_index, one.names or ())
        if index is not None
    ]
    seen = {bus for one in told for bus in one.seen.buses}
    if len(set(used)) < min(len(used), len(seen)):
        text = (
            f"devices= names {len(set(used))} of the {len(seen)} GPUs of node {host} for"
            f" {len(used)} replicas; without devices= the GPUs are dealt out to its ranks"
        )
        warn_once(_LOG, f"shared {host}", text)
