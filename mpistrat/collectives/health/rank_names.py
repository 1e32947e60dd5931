"""Name ranks in texts: those of a sub-communicator with their ranks in the job, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mpistrat.cluster import mpi

__all__ = ["RankNames", "of_comm"]


class RankNames:
    """How texts name the ranks of one communicator. All methods are **Local.**

    As ``1``, or where the communicator numbers its ranks in another way than COMM_WORLD does,
    which the launcher's output and other texts go by, as ``1 (world rank 3)``.

    Parameters
    ----------
    rank, size
        Of this process in the communicator.
    world
        The rank in COMM_WORLD of each rank; None if that is the same number.
    """

    def __init__(self, rank: int, size: int, world: Sequence[int] | None = None) -> None:
        self._rank, self._size = rank, size
        self._world = None if world is None or list(world) == list(range(size)) else list(world)

    def of(self, rank: int) -> str:
        """Return the name of a rank."""
        return str(rank) if self._world is None else f"{rank} (world rank {self._world[rank]})"

    def listed(self, ranks: Iterable[int]) -> str:
        """Return the names of several ranks."""
        return ", ".join(map(self.of, ranks))

    def place(self, rank: int) -> str:
        """Return the name of a rank with the number of ranks, as ``1/4``."""
        if self._world is None:
            return f"{rank}/{self._size}"
        return f"{rank}/{self._size} (world rank {self._world[rank]})"

    @property
    def here(self) -> str:
        """The place of this rank."""
        return self.place(self._rank)

    def here_by(self, backend: str) -> str:
        """Return the place of this rank with the name of its backend."""
        if self._world is None:
            return f"{self.here} ({backend})"
        return f"{self.here[:-1]}, {backend})"

    def world_rank(self, rank: int) -> int:
        """Return the rank in COMM_WORLD of a rank."""
        return rank if self._world is None else self._world[rank]

    def rank_of(self, world_rank: int) -> int | None:
        """Return the rank of a process of COMM_WORLD here; None if it is not in it."""
        world = range(self._size) if self._world is None else self._world
        return world.index(world_rank) if world_rank in world else None


def of_comm(comm: Any, rank: int, size: int) -> RankNames:
    """Return the names of the ranks of `comm`, in which this process is `rank` of `size`.

    Those of ranks as threads, and of processes outside of this COMM_WORLD, are their numbers.
    """
    return RankNames(rank, size, mpi.world_ranks(comm) if mpi.is_mpi_comm(comm) else None)
