"""Read what steps leave behind: pytest's JUnit file, the benchmark's JSON lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

_MESSAGE_CHARACTERS = 2000


_OUTCOME = r"(PASSED|FAILED|ERROR|SKIPPED)"
_LINE = re.compile(
    # Of pytest, and of pytest with several workers.
    rf"^(\S+::.+?) {_OUTCOME}\b|^\[gw\d+\] \[ *\d+%\] {_OUTCOME} (\S+::.+?) *$",
    re.MULTILINE,
)


def of_tests(file: Path, log: Path) -> dict[str, Any]:
    """Return the numbers of tests by outcome, and those that failed with their messages.

    Parameters
    ----------
    file
        pytest's JUnit file, which is not there if pytest was ended.
    log
        What it printed, a line for each test.
    """
    if not file.exists():
        return _of_log(log.read_text(encoding="utf-8", errors="replace"))
    try:
        cases = list(ET.parse(file).iter("testcase"))
    except ET.ParseError as error:
        raise ValueError(f"{file.name}: {error}") from error
    failed = {}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in cases:
        bad = [one for one in case if one.tag in ("failure", "error")]
        name = f"{case.get('classname')}::{case.get('name')}"
        if bad:
            counts["failed"] += 1
            failed[name] = (bad[0].text or bad[0].get("message") or "")[-_MESSAGE_CHARACTERS:]
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    skips = [one.get("message") or "" for case in cases for one in case.iter("skipped")]
    reasons = {reason: skips.count(reason) for reason in sorted(set(skips))}
    return {"counts": counts, "failed": failed, "skipped_because": reasons}


def _of_log(text: str) -> dict[str, Any]:
    found = [(one[0] or one[3], one[1] or one[2]) for one in _LINE.findall(text)]
    failed = {name: "" for name, outcome in found if outcome in ("FAILED", "ERROR")}
    counts = {
        outcome.lower(): sum(one == outcome for _, one in found)
        for outcome in ("PASSED", "SKIPPED")
    }
    return {"counts": {**counts, "failed": len(failed)}, "failed": failed, "skipped_because": {}}


def of_benchmark(file: Path) -> list[dict[str, Any]]:
    """Return the records of a benchmark; none if it wrote no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def bars(records: list[dict[str, Any]]) -> list[str]:
    """Return a line for each bar that the benchmark has judged."""
    return [
        f"{'met   ' if bar['met'] else 'MISSED'} {bar['bar']} {bar['value']:g}"
        f" ({record['op']} {record.get('what', '')} {record['bytes']} bytes,"
        f" {record['ranks']} ranks)"
        for record in records
        for bar in record["bars"]
    ]
