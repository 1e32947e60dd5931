"""Do one run: start its ranks, wait for their end, and read what they measured."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from mpistrat.bench.results.file import FACTS
from mpistrat.bench.results.point import Placement, Point, Setup
from mpistrat.bench.scaling.case_options import as_words
from mpistrat.bench.scaling.launching import Start
from mpistrat.bench.scaling.planning import Planned
from mpistrat.errors import UsageError
from mpistrat.testing.launching import processes

__all__ = ["do_run"]

_KEPT_CHARS = 4000  # of what a failed run printed
_PARENT_GRACE_S = 2.0


def do_run(planned: Planned, start: Start, timeout_s: float, folder: Path) -> Point:
    """Run a case once; it is ended, with all that it started, after `timeout_s` seconds.

    Parameters
    ----------
    folder
        Where rank 0, which may be on another node, can write what it measured.

    Returns
    -------
    Point
        However it ended.

    Raises
    ------
    UsageError
        The launcher cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix=".mpistrat-scale-", dir=folder) as own:
        placement, records, output = (Path(own, name) for name in ("placed", "json", "output"))
        words = as_words(planned.setup.options)
        program = ["-m", "mpistrat.bench.scaling.rank", str(placement), planned.setup.case, *words]
        command = start.command(
            *(planned.setup.ranks, planned.setup.nodes), [*program, f"--json={records}"]
        )
        began = time.monotonic()
        status = _outcome(command, start, output, timeout_s)
        duration_s = time.monotonic() - began
        told = _lines(placement)
        placed = tuple(Placement.model_validate(one) for one in _placed(told))
        said = "" if status == "ok" else _end_of(output)
        if status == "timeout":
            said = f"{said}\nended after {timeout_s:.1f} s, the longest time of a run".strip()
        elif status == "ok" and (elsewhere := _elsewhere(planned.setup, placed)):
            status, said = "failed", elsewhere
        return Point(
            setup=planned.setup,
            repeat=planned.repeat,
            status=status,
            message=said,
            duration_s=round(duration_s, 3),
            records=tuple(_without_facts(one) for one in _lines(records)),
            placement=placed,
            facts=told[0]["facts"] if told else {},
        )


def _outcome(
    command: list[str], start: Start, output: Path, timeout_s: float
) -> Literal["ok", "failed", "timeout"]:
    with _started(command, start, output) as job:
        try:
            return "failed" if job.wait(timeout_s) else "ok"
        except subprocess.TimeoutExpired:
            return "timeout"


@contextlib.contextmanager
def _started(command: list[str], start: Start, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a job; end it, with all that it started, at the end of the block."""
    token, mark = processes.new_token()
    marks = {processes.TOKEN_VARIABLE: mark, "PYTHONUNBUFFERED": "1"}
    with output.open("wb") as file:
        try:
            job = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=start.environment | marks,
                start_new_session=True,  # Ctrl-C reaches the suite alone, which ends the job
            )
        except OSError as error:
            raise UsageError(f"{command[0]}: {error}; --launch names another launcher") from error
    try:
        yield job
    finally:
        processes.end_all(token, [job.pid], _PARENT_GRACE_S)
        job.wait(_PARENT_GRACE_S)


def _without_facts(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is the record's own: the point has what all records share."""
    return {name: value for name, value in record.items() if name not in FACTS}


def _elsewhere(setup: Setup, placement: Sequence[Placement]) -> str:
    """Return what is wrong with the places of ranks, or ""."""
    nodes = len({one.host for one in placement})
    if (len(placement), nodes) == (setup.ranks, setup.nodes):
        return ""
    return (
        f"the launcher started {len(placement)} ranks on {nodes} machines, expected {setup.ranks}"
        f" on {setup.nodes}; --launch says how ranks start, --nodes how many machines there are"
    )


def _placed(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return told[0]["placement"] if told else []


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file's lines; none where there is no file."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # the job was ended while it wrote
            found.append(json.loads(line))
    return found


def _end_of(output: Path) -> str:
    return output.read_bytes().decode(errors="replace").strip()[-_KEPT_CHARS:]
