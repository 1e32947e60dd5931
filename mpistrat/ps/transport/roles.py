"""Assign the roles in a job: one chief, workers, parameter servers, evaluators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.errors import ClusterError

__all__ = ["TASK_TYPES", "Member", "Roster", "member_of"]

TASK_TYPES = ("chief", "worker", "ps", "evaluator")


@dataclass(frozen=True)
class Member:
    """One task of the job.

    Attributes
    ----------
    task_type, task_id
        Its role, and its index among those of that role.
    rank
        Its rank; 0 for all where threads of one process play the roles.
    devices
        Of a worker: full names of what its replicas run on, one each; none is one CPU.
    """

    task_type: str
    task_id: int
    rank: int = 0
    devices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.task_type} {self.task_id} (rank {self.rank})"

    @property
    def device(self) -> str:
        """The device string of its memory."""
        return f"/job:{self.task_type}/replica:0/task:{self.task_id}/device:CPU:0"

    @property
    def num_replicas(self) -> int:
        """How many replicas a worker runs."""
        return len(self.devices) or 1

    def talks_to(self, other: Member) -> bool:
        """Tell whether the two send each other messages.

        All but members of one role do; evaluators hear from the chief only.
        """
        types = {self.task_type, other.task_type}
        return types == {"chief", "evaluator"} if "evaluator" in types else len(types) == 2


class Roster:
    """All members of a job.

    Parameters
    ----------
    members
        In order of their ranks.

    Raises
    ------
    ClusterError
        There is not exactly one chief, no worker or no ps, or two have the same task.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self.workers = self._of("worker")
        self.ps = self._of("ps")
        self.evaluators = self._of("evaluator")
        chiefs = self._of("chief")
        if len(chiefs) != 1 or not self.workers or not self.ps:
            raise ClusterError(
                f"a job with parameter servers has {len(chiefs)} chiefs, {len(self.workers)}"
                f" workers and {len(self.ps)} ps; expected one chief and at least one of each"
                " other; start more ranks, or give the resolver another num_ps"
            )
        self.chief = chiefs[0]

    def _of(self, task_type: str) -> tuple[Member, ...]:
        found = sorted(
            (one for one in self.members if one.task_type == task_type),
            key=lambda one: one.task_id,
        )
        ids = [one.task_id for one in found]
        if ids != list(range(len(ids))):
            raise ClusterError(
                f"the {task_type} tasks of this job have the indices {ids}; expected each from 0"
                f" to {len(ids) - 1} once"
            )
        return tuple(found)

    def __getstate__(self) -> Any:
        return self.members

    def __setstate__(self, members: Any) -> None:
        self.__init__(members)  # type: ignore[misc]


def member_of(resolver: ClusterResolver, rank: int, wanted: Sequence[str]) -> Member:
    """Return what a resolver says of this process.

    Raises
    ------
    ClusterError
        It names no role, or not one of `wanted`.
    """
    task_type, task_id = resolver.task_type, resolver.task_id or 0
    if task_type not in TASK_TYPES:
        raise ClusterError(
            f"rank {rank}: the resolver's task_type is {task_type!r}; expected one of"
            f" {', '.join(TASK_TYPES)}; MPIClusterResolver(num_ps=1) gives every rank a role"
        )
    if task_type not in wanted:
        raise ClusterError(
            f"rank {rank} is {task_type} {task_id}; the chief makes the ParameterServerStrategy,"
            " the others call mpistrat.Server(resolver).join(): branch on resolver.task_type"
        )
    return Member(str(task_type), int(task_id), rank)
