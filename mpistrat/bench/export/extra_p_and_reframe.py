"""Write results for Extra-P, which fits models, and as a performance log of ReFrame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mpistrat.bench.export.measurement import Measurement

__all__ = ["extra_p_lines", "reframe_lines"]

_REFRAME_HEADER = (
    "job_completion_time|version|display_name|system|partition|environ|jobid|result"
    "|time_us_value|time_us_unit|time_us_ref|time_us_lower_thres|time_us_upper_thres"
    "|busbw_value|busbw_unit|busbw_ref|busbw_lower_thres|busbw_upper_thres|"
)


def extra_p_lines(found: Iterable[Measurement]) -> Iterator[str]:
    """Yield JSON lines for ``extrap --jsonlines``: parameters p (ranks) and n (bytes)."""
    for one in found:
        params = {"p": one.point.setup.ranks, "n": one.nbytes}
        line: dict[str, Any] = {
            "params": params,
            "callpath": "->".join(part.replace("->", " ") for part in one.name),
            "metric": "time_us",
            "value": one.median_us,
        }
        yield json.dumps(line)


def reframe_lines(found: Iterable[Measurement]) -> Iterator[str]:
    """Yield lines as ReFrame's ``filelog`` writes them, after a line of the columns' names."""
    yield _REFRAME_HEADER
    for one in found:
        point = one.point
        name = " ".join((*one.name, f"%bytes={one.nbytes}", f"%ranks={point.setup.ranks}"))
        facts = (
            str(point.facts.get("date", "")),
            f"mpistrat {point.facts.get('mpistrat', '')}",
            f"{name} %nodes={point.setup.nodes}",
            point.site or point.job.get("cluster") or "generic",
            point.job.get("partition", "default"),
            str(point.facts.get("mpi", "builtin")),
            point.job.get("id", ""),
            "pass" if one.record.get("correct", True) else "fail",
        )
        busbw = one.record.get("busbw_GBps")
        figures = (one.median_us, "us", 0, None, None, busbw, "GB/s", 0, None, None)
        yield "|".join([*(_clean(fact) for fact in facts), *map(_text, figures), ""])


def _clean(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _text(value: object) -> str:
    return "null" if value is None else str(value)
