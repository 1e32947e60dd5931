"""Write the results as JUnit's XML, which continuous integration shows as tests."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from mpistrat.doctor.check import Result, Status
from mpistrat.doctor.examination import Examination

__all__ = ["as_junit"]

_NOT_OF_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(examination: Examination) -> str:
    """Return a test suite with a test for each check.

    A failure is a failed test, a check that is not here a skipped one. JUnit has no warnings:
    their tests pass, and have the text as their output.
    """
    suite = ET.Element(
        "testsuite",
        name="mpistrat doctor",
        tests=str(len(examination.results)),
        failures=str(examination.count(Status.FAILURE)),
        errors="0",
        skipped=str(examination.count(Status.NOT_HERE)),
        time=f"{examination.duration_s:.3f}",
        timestamp=examination.date.isoformat(timespec="seconds"),
        hostname=examination.job.hosts[0],
    )
    for result in examination.results:
        _add(suite, result)
    ET.indent(suite)
    text = ET.tostring(suite, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _add(suite: ET.Element, result: Result) -> None:
    name = result.name.partition(".")[2]
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"doctor.{result.area}",
        name=name,
        time=f"{result.duration_s:.3f}",
    )
    text = _clean(
        "\n\n".join(
            f"found: {p.got}\nexpected: {p.expected}\ndo: {p.fix}"
            + (f"\ntype: {p.command}" if p.command else "")
            for p in result.problems
        )
    )
    if result.status is Status.FAILURE:
        failed = ET.SubElement(case, "failure", message=_clean(result.problems[0].got))
        failed.text = text
    elif result.status is Status.NOT_HERE:
        ET.SubElement(case, "skipped", message=_clean(result.value))
    else:
        output = ET.SubElement(case, "system-out")
        output.text = _clean(f"{result.status.value}: {result.value}") + (
            f"\n{text}" if text else ""
        )


def _clean(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return _NOT_OF_XML.sub("?", text)
