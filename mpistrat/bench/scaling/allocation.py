"""Find the nodes and CPUs that the ranks of all runs may have."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import UsageError

__all__ = ["Allocation", "find_allocation"]

_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True)
class Allocation:
    """What one job has.

    Attributes
    ----------
    nodes
        Number of machines.
    per_node
        Ranks that each holds.
    """

    nodes: int
    per_node: int

    def rank_counts(self) -> tuple[int, ...]:
        """Return the powers of two up to all ranks, and all ranks."""
        total = self.nodes * self.per_node
        powers = [2**k for k in range(total.bit_length()) if 2**k < total]
        return (*powers, total)

    def fewest_nodes(self, ranks: int) -> int:
        """Return how many nodes hold so many ranks; all, where none hold them."""
        return min(-(-ranks // self.per_node), self.nodes)

    def check(self, ranks: int, nodes: int) -> None:
        """Raise `UsageError` if there are not so many nodes, or they do not hold the ranks."""
        if nodes > self.nodes:
            raise UsageError(
                f"{nodes} nodes: this job has {self.nodes}; take fewer, or start it in a larger"
                " allocation"
            )
        if ranks > nodes * self.per_node:
            each = -(-ranks // nodes)
            raise UsageError(
                f"{ranks} ranks on {nodes} nodes: a node holds {self.per_node}; take fewer, or"
                f" --per-node {each} lets ranks share cores"
            )


def find_allocation(nodes: int | None, per_node: int | None) -> Allocation:
    """Return what the user says, else what the scheduler says, else this machine's cores."""
    found = _of_slurm(os.environ) or _of_pbs(os.environ) or _of_machine()
    return Allocation(nodes or found.nodes, per_node or found.per_node)


def _of_slurm(environment: Mapping[str, str]) -> Allocation | None:
    nodes = environment.get("SLURM_JOB_NUM_NODES", "")
    if not _number(nodes) or "SLURM_JOB_ID" not in environment:
        return None
    if tasks := _number(environment.get("SLURM_NTASKS_PER_NODE", "")):
        return Allocation(int(nodes), tasks)
    # Such as "64(x2),32": the node with the fewest counts, since runs take any of them.
    cpus = [
        int(one) for one, _ in _PER_NODE.findall(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    ]
    each = _number(environment.get("SLURM_CPUS_PER_TASK", "1")) or 1
    return Allocation(int(nodes), max(1, min(cpus, default=1) // each))


def _number(text: str) -> int:
    """Return a whole number above 0, or 0 where there is none."""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _of_pbs(environment: Mapping[str, str]) -> Allocation | None:
    file = environment.get("PBS_NODEFILE")
    if not file:
        return None
    try:
        lines = Path(file).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return None
    counts = [lines.count(host) for host in set(lines)]
    return Allocation(len(counts), min(counts)) if counts else None


def _of_machine() -> Allocation:
    return Allocation(1, len(os.sched_getaffinity(0)))
