"""`Point`: one run of a benchmark's case, as a line of a result file holds it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FORMAT", "Placement", "Point", "Setup"]

FORMAT: Literal["mpistrat-results-1"] = "mpistrat-results-1"

_MOST = 10**8  # ranks or machines: far above what there is


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(_Frozen):
    """What was run: two points of the same setup are repeats of one measurement.

    Attributes
    ----------
    case
        The subcommand of ``mpistrat bench``.
    options
        Its options, by name without the dashes, as on the command line; of a switch the value is
        ``""``.
    ranks
        Ranks of the job.
    nodes
        Machines that they were on.
    """

    case: str
    options: dict[str, str] = Field(default_factory=dict)
    ranks: int = Field(ge=1, le=_MOST)
    nodes: int = Field(ge=1, le=_MOST)

    @property
    def title(self) -> str:
        """The setup as one line, for messages and for finding a point again."""
        options = " ".join(f"--{name} {value}".rstrip() for name, value in self.options.items())
        return f"{self.case} {options}".rstrip() + f", {self.place}"

    @property
    def place(self) -> str:
        """Ranks and nodes as words."""
        return f"{_counted(self.ranks, 'rank')} on {_counted(self.nodes, 'node')}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Placement(_Frozen):
    """Where a rank ran.

    Attributes
    ----------
    rank
        Its number in the job.
    host
        The name of its machine.
    cores
        The numbers of the CPUs that it may use.
    domains
        The numbers of the NUMA domains of these; empty where that is not known.
    """

    rank: int
    host: str
    cores: tuple[int, ...]
    domains: tuple[int, ...] = ()


class Point(_Frozen):
    """One run of a case.

    Attributes
    ----------
    format
        Of the line.
    setup
        What was run.
    repeat
        Which of the setup's runs this is, from 0.
    status
        Whether the case ended by itself with exit status 0 (``ok``) or another one (``failed``),
        or was ended after its time (``timeout``).
    message
        The end of what it printed, unless it was ``ok``.
    duration_s
        From its start to its end, with the start of the ranks.
    records
        What the case wrote with ``--json``: one for each row and side. Their keys are the case's.
    placement
        Where each rank ran; empty if the job failed before that was known.
    facts
        Of the run: date, versions, commit, the processor's model.
    job
        Of the batch job, where there is one: its id, node list and partition.
    site
        The name of the site's file that fits to this machine, where one does.
    """

    format: Literal["mpistrat-results-1"] = FORMAT
    setup: Setup
    repeat: int = 0
    status: Literal["ok", "failed", "timeout"] = "ok"
    message: str = ""
    duration_s: float = Field(default=0.0, ge=0)
    records: tuple[dict[str, Any], ...] = ()
    placement: tuple[Placement, ...] = ()
    facts: dict[str, Any] = Field(default_factory=dict)
    job: dict[str, str] = Field(default_factory=dict)
    site: str | None = None
