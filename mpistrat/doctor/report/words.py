"""Word what all reports say of a job: how it was started, and the sum of the results."""

from __future__ import annotations

from mpistrat.doctor.check import Status
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.job.job import Job

__all__ = ["counted", "started_by", "summary", "visible"]

_HOW = {
    "alone": "without a launcher",
    "unknown": "started by a launcher that is not known",
    "flux": "started by flux run",
}


def counted(number: int, noun: str) -> str:
    """Return ``"1 node"``, ``"2 nodes"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def started_by(job: Job) -> str:
    """Return how the job was started, and the site that it is compared with."""
    launcher = job.launcher
    how = _HOW.get(launcher.kind, f"started by {launcher.kind}")
    if launcher.kind == "srun" and launcher.mpi_type:
        how += f" --mpi={launcher.mpi_type}"
    return how + (f", site {job.site.name}" if job.site else "")


def summary(examination: Examination) -> str:
    """Return the line that ends the report."""
    failures, warnings, well, elsewhere = map(
        examination.count, (Status.FAILURE, Status.WARNING, Status.OK, Status.NOT_HERE)
    )
    parts = [counted(failures, "failure"), counted(warnings, "warning"), f"{well} ok"]
    parts.append(f"{elsewhere} not here")
    return f"{', '.join(parts)}; {examination.duration_s:.1f} s"


def visible(text: str) -> str:
    """Return text in which what would act on the terminal, or is not Unicode, is spelled out."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
