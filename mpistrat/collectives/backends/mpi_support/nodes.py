"""Group the ranks by machine, and number the machines' ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpistrat.cluster.topology import host_name
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.shared_memory import bootstrap
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.kernels import why_no_kernels

__all__ = ["Nodes"]


@dataclass(frozen=True)
class Nodes:
    """The ranks of a communicator by machine.

    Attributes
    ----------
    rank
        This rank.
    groups
        The ranks of each node in ascending order; nodes are in the order of their lowest ranks.
    """

    rank: int
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, rank: int, names: Sequence[int]) -> Nodes:
        """Build it from a number for the machine of every rank. **Local.**"""
        groups: dict[int, list[int]] = {}
        for of, name in enumerate(names):
            groups.setdefault(name, []).append(of)
        return cls(rank, tuple(tuple(group) for group in groups.values()))

    @classmethod
    def find(cls, mpi: MpiBackend, timeout: float) -> Nodes:
        """Exchange names of machines, 16 bytes a rank. **Collective.**

        Raises
        ------
        BackendUnavailableError
            On all ranks: some rank has no kernels.
        """
        name = hashlib.blake2b(host_name().encode(), digest_size=8).digest()
        mine = np.array([int.from_bytes(name, "little", signed=True), why_no_kernels() is None])
        table = np.empty(2 * mpi.size, np.int64)
        with bootstrap.kept(mine, table):
            bootstrap.run(mpi.allgather(mine, table, [2] * mpi.size), timeout, mpi)
        names, have_kernels = table.reshape(mpi.size, 2).T
        if not have_kernels.all():
            first = int(have_kernels.argmin())
            reason = why_no_kernels() or "mpistrat was installed there without its C++ kernels"
            raise BackendUnavailableError(f"rank {first}: {reason}")
        return cls.of(mpi.rank, names.tolist())

    @cached_property
    def count(self) -> int:
        """How many there are."""
        return len(self.groups)

    @cached_property
    def index(self) -> int:
        """Index of this rank's node."""
        return next(i for i, group in enumerate(self.groups) if self.rank in group)

    @cached_property
    def local_rank(self) -> int:
        """Index of this rank on its node."""
        return self.mates.index(self.rank)

    @cached_property
    def mates(self) -> tuple[int, ...]:
        """The ranks of this rank's node."""
        return self.groups[self.index]

    @cached_property
    def lanes(self) -> int:
        """How many ranks of each node carry data over the wire: as many as the least node has."""
        return min(map(len, self.groups))

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Each rank's node and local rank."""
        return {
            rank: (node, local)
            for node, group in enumerate(self.groups)
            for local, rank in enumerate(group)
        }
