"""Find the devices of the workers of parameter servers: those they name, or GPUs bound to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mpistrat.cluster.devices.gpu_binding import SeenGpus, bound_devices
from mpistrat.cluster.devices.names import named_devices
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.topology import host_name
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import UsageError
from mpistrat.ps.transport.roles import Member, Roster, member_of

__all__ = ["devices_of_workers", "embedded_roster", "named", "seen_gpus"]


def named(devices: Sequence[str], worker: int) -> tuple[str, ...]:
    """Return the full names of devices that a worker names, all of which are there. **Local.**

    Raises
    ------
    UsageError, ArgumentTypeError, BackendUnavailableError
        They are no device strings; a GPU is not there, or CuPy to use it.
    """
    names = named_devices(devices, worker)
    gpu_devices.require(names)
    return names


def seen_gpus() -> SeenGpus:
    """Return the GPUs that this rank can see. **Local.**"""
    return SeenGpus(host_name(), gpu_devices.visible_buses())


def devices_of_workers(members: Sequence[Member], seen: Sequence[SeenGpus | None]) -> list[Member]:
    """Return the members of a job, each worker with its devices. **Local.**

    Parameters
    ----------
    members
        Of all ranks. Those that name devices have them already.
    seen
        Of each member: the GPUs that a worker can see which names no devices, else None.

    Raises
    ------
    ClusterError
        The same on all ranks: the workers do not see the GPUs of their nodes alike.
    """
    asking = [one for one in seen if one is not None]
    places = iter(range(len(asking)))
    return [
        member
        if one is None
        else replace(member, devices=bound_devices(asking, next(places), member.task_id))
        for member, one in zip(members, seen, strict=True)
    ]


def embedded_roster(
    resolver: ClusterResolver, worker_devices: Sequence[Sequence[str]] | None = None
) -> Roster:
    """Return the members that threads of this process play: those of the resolver's cluster.

    Parameters
    ----------
    resolver
        Says how many of each role there are.
    worker_devices
        Those of each worker; None for the GPUs that this process can see, dealt out to them, or
        one CPU each where it sees none.

    Raises
    ------
    UsageError
        `worker_devices` is not for that many workers, or names what is no device.
    BackendUnavailableError
        It names a GPU that is not there.
    """
    if resolver.task_type is not None:
        member_of(resolver, 0, ["chief"])
    spec = resolver.cluster_spec().as_dict()
    jobs = {job: len(tasks) for job, tasks in spec.items()}
    members = [Member("chief", 0)]
    count = max(1, jobs.get("worker", 0))
    given = [None] * count if worker_devices is None else list(worker_devices)
    if len(given) != count:
        raise UsageError(
            f"worker_devices={worker_devices!r} is for {len(given)} workers, and the job has"
            f" {count}; expected a list of devices for each of them"
        )
    workers = [
        Member("worker", index, 0, () if devices is None else named(devices, index))
        for index, devices in enumerate(given)
    ]
    here = seen_gpus() if None in given else None
    seen = [here if devices is None else None for devices in given]
    members += devices_of_workers(workers, seen)
    members += [Member("ps", index) for index in range(max(1, jobs.get("ps", 0)))]
    return Roster(members)
