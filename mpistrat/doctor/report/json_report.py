"""Write the results as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import mpistrat
from mpistrat.doctor.check import Result, Status
from mpistrat.doctor.examination import Examination

__all__ = ["as_json"]


def as_json(examination: Examination) -> str:
    """Return one JSON object: the job, the number of each status, and the checks."""
    job = examination.job
    content = {
        "mpistrat": mpistrat.__version__,
        "date": examination.date.isoformat(timespec="seconds"),
        "duration_s": round(examination.duration_s, 3),
        "exit_code": examination.exit_code,
        "job": {
            "ranks": job.size,
            "hosts": list(job.hosts),
            "launcher": asdict(job.launcher),
            "mpi_library": job.library,
            "slurm": job.slurm,
            "site": job.site.name if job.site else None,
        },
        "summary": {status.value: examination.count(status) for status in Status},
        "checks": [_check(result) for result in examination.results],
    }
    return json.dumps(content, indent=2) + "\n"


def _check(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "title": result.title,
        "status": result.status.value,
        "value": result.value,
        "expected": result.expected or "; ".join(p.expected for p in result.problems),
        "fix": result.fix,
        "source": result.source,
        "duration_s": round(result.duration_s, 4),
        "problems": [
            {
                "status": problem.status.value,
                "got": problem.got,
                "expected": problem.expected,
                "fix": problem.fix,
                "command": problem.command,
            }
            for problem in result.problems
        ],
    }
