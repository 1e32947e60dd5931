"""Check what the launcher announced against what MPI's communicator says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat import config
from mpistrat.cluster.launcher import launch_variables
from mpistrat.cluster.slurm import step
from mpistrat.errors import ClusterError

__all__ = ["Announced", "announced", "check"]

_REORDERING = "MPICH_RANK_REORDER_METHOD"  # of Cray MPICH: ranks are not in the launcher's order
_DOCTOR = "`mpistrat doctor`, started in the same way in place of the program, finds the cause"


@dataclass(frozen=True)
class Announced:
    """What the launcher told one rank of itself.

    Attributes
    ----------
    node
        Number of its node, where srun says it.
    complaint
        What does not fit MPI's communicator or is missing, or "".
    """

    node: int | None = None
    complaint: str = ""


def announced(world: tuple[int, int] | None) -> Announced:
    """Return what the launcher told this process, whose rank and world size by MPI are `world`.

    **Local.** Nothing is compared where the variables tell of fewer ranks than MPI has: then they
    are those of an outer job, such as the step with a shell in which mpirun was called.
    """
    if world is None or config.allows_singleton() or _is_outer(world[1]):
        return Announced()
    is_srun = launch_variables.is_srun()
    lacking = step.missing() if is_srun else []
    if lacking:
        return Announced(complaint=f"is in a Slurm step, but has {step.values(lacking)}")
    node = int(os.environ[step.NODE_VARIABLE]) if is_srun and not config.node_size() else None
    return Announced(node, _other_rank(world[0]))


def _is_outer(size: int) -> bool:
    expected = launch_variables.expected_size()
    return expected is not None and expected[1] < size


def _other_rank(world_rank: int) -> str:
    """Return how the launcher's rank of this process differs from MPI's, or ""."""
    ranks = launch_variables.announced_ranks()
    if not ranks or world_rank in ranks.values() or _REORDERING in os.environ:
        return ""
    shown = ", ".join(f"{name}={rank}" for name, rank in ranks.items())
    return f"is rank {world_rank} by MPI, but has {shown}"


def check(hosts: Sequence[str], everyone: Sequence[Announced]) -> None:
    """Raise `ClusterError`, the same on all ranks, if launcher and MPI do not fit. **Local.**

    Parameters
    ----------
    hosts, everyone
        The machine of every rank, and what it was told, by rank.
    """
    wrong = [f"rank {rank} {one.complaint}" for rank, one in enumerate(everyone) if one.complaint]
    if wrong:
        more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise ClusterError(
            f"the launcher's variables do not fit MPI: {'; '.join(wrong[:4])}{more}; start all"
            " ranks by one srun or mpirun, and let no script set or unset the launcher's"
            f" variables; {_DOCTOR}"
        )
    first: dict[str, int] = {}
    for rank, (host, one) in enumerate(zip(hosts, everyone, strict=True)):
        other = first.setdefault(host, rank)
        nodes = everyone[other].node, one.node
        if None not in nodes and nodes[0] != nodes[1]:
            raise ClusterError(
                f"ranks {other} and {rank} both say that their machine is {host!r}, but Slurm"
                f" started them on its nodes {nodes[0]} and {nodes[1]} ({step.NODE_VARIABLE});"
                f" give each node's container a host name of its own; {_DOCTOR}"
            )
