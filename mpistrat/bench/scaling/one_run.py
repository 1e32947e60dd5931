"""Do one run: start its ranks, wait for their end, and read what they measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from mpistrat.bench.results.file import FACTS
from mpistrat.bench.results.point import Placement, Point, Setup
from mpistrat.bench.scaling.case_options import as_words
from mpistrat.bench.scaling.job import end_of, run_job
from mpistrat.bench.scaling.launching import Start
from mpistrat.bench.scaling.planning import Planned

__all__ = ["do_run", "folder_prefix"]


def folder_prefix(output: Path) -> str:
    """Return how the hidden folders begin in which runs write, beside their result file."""
    return f".mpistrat-scale-{output.name}-"


class _Told(BaseModel):
    """What rank 0 writes before the case begins."""

    placement: tuple[Placement, ...] = ()
    facts: dict[str, Any] = {}


def do_run(planned: Planned, start: Start, timeout_s: float, output: Path) -> Point:
    """Run a case once; it is ended, with all that it started, after `timeout_s` seconds.

    Parameters
    ----------
    output
        The result file; beside it rank 0, which may be on another node, writes what it measured.

    Returns
    -------
    Point
        However it ended.

    Raises
    ------
    UsageError
        The launcher cannot be started.
    """
    setup = planned.setup
    with tempfile.TemporaryDirectory(
        prefix=folder_prefix(output), dir=output.parent.absolute()
    ) as own:
        placed, records, printed = (Path(own, name) for name in ("placed", "json", "output"))
        program = ["-m", "mpistrat.bench.scaling.rank", str(placed), setup.case]
        program += [*as_words(setup.options), f"--json={records}"]
        command = start.command(setup.ranks, setup.nodes, program)
        began = time.monotonic()
        status = run_job(command, start.environment, printed, timeout_s)
        point = Point(
            setup=setup,
            repeat=planned.repeat,
            status=status,
            message="" if status == "ok" else end_of(printed),
            duration_s=round(time.monotonic() - began, 3),
        )
        if status == "timeout":
            point = _with_reason(
                point, f"ended after {timeout_s:.1f} s, the longest time of a run"
            )
        return _with_figures(point, placed, records)


def _with_figures(point: Point, placed: Path, records: Path) -> Point:
    """Return a point with what its ranks wrote; failed where that is not what was asked for."""
    try:
        told = _Told.model_validate(_objects(placed)[0] if placed.exists() else {})
        found = tuple(_without_facts(one) for one in _objects(records))
    except (ValueError, IndexError, ValidationError) as error:
        return _with_reason(point, f"what its rank 0 wrote cannot be read: {error}")
    changes = {"records": found, "placement": told.placement, "facts": told.facts}
    point = point.model_copy(update=changes)
    wrong = _why_wrong(point.setup, told.placement, found) if point.status == "ok" else ""
    return _with_reason(point, wrong) if wrong else point


def _with_reason(point: Point, reason: str) -> Point:
    status = "failed" if point.status == "ok" else point.status
    message = f"{point.message}\n{reason}".strip()
    return point.model_copy(update={"status": status, "message": message})


def _why_wrong(setup: Setup, placement: Sequence[Placement], records: Sequence[Any]) -> str:
    """Return what is wrong with a run that ended well, or ""."""
    nodes = len({one.host for one in placement})
    if (len(placement), nodes) != (setup.ranks, setup.nodes):
        return (
            f"the launcher started {len(placement)} ranks on {nodes} machines, expected"
            f" {setup.ranks} on {setup.nodes}; --launch says how ranks start, --nodes how many"
            " machines there are"
        )
    return "" if records else "it ended well, but measured nothing"


def _without_facts(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is the record's own: the point has what all records share."""
    return {name: value for name, value in record.items() if name not in FACTS}


def _objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file's lines, without one that was not written to its end."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    found = [from_json(line) for line in lines]
    if not all(isinstance(one, dict) for one in found):
        raise ValueError("expected a JSON object on each line")
    return found
