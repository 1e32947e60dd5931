"""`Here`: the process, its start and the user's options, as measurements of checks see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpistrat.doctor.job.launcher import ALONE, Launcher

if TYPE_CHECKING:
    from mpistrat.sites.schema import Site

__all__ = ["Here", "MpiStart", "Options"]


@dataclass(frozen=True)
class Options:
    """Options of the command line that checks look at.

    Attributes
    ----------
    imports
        Modules that one rank of each node imports in a child process.
    save_s
        Seconds that a checkpoint takes; None where the user has not said.
    deadline_s
        Seconds after which the whole command ends.
    """

    imports: tuple[str, ...] = ()
    save_s: float | None = None
    deadline_s: float = 60.0

    @property
    def measure_s(self) -> float:
        """Seconds after which a measurement on a rank is given up; it takes less than one."""
        return 30.0 if self.imports else 5.0


@dataclass(frozen=True)
class MpiStart:
    """How MPI started in this process.

    Attributes
    ----------
    library
        The version text of the MPI library, "" where there is none.
    size
        The ranks that MPI sees; 0 where it did not start.
    duration_s
        Time of MPI_Init.
    problem
        Why it did not start, although a launcher asked for it.
    """

    library: str = ""
    size: int = 0
    duration_s: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Here:
    """The process, with the user's options.

    Attributes
    ----------
    environment
        Its environment variables.
    start_mask
        The logical cores that it was started with.
    launcher, mpi
        What started it, and how MPI started.
    options
        The user's.
    is_first_of_node
        Whether this is the rank that measures for its node.
    hosts
        The node of each rank, by rank.
    site
        The site that the machine is compared with; known on rank 0 only.
    """

    environment: Mapping[str, str]
    start_mask: frozenset[int] = frozenset()
    launcher: Launcher = ALONE
    mpi: MpiStart = MpiStart()
    options: Options = field(default_factory=Options)
    is_first_of_node: bool = True
    hosts: tuple[str, ...] = ("",)
    site: Site | None = None

    def number(self, name: str) -> int | None:
        """Return the whole number that a variable holds, or None."""
        text = self.environment.get(name, "")
        return int(text) if text.isdigit() else None
