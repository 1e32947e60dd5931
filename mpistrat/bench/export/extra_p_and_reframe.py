"""Write results for Extra-P, which fits models, and as a performance log of ReFrame."""

from __future__ import annotations

import json
from collections import Counter
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
    """Yield JSON lines for ``extrap --json``, with the parameter p, the number of ranks.

    The size is a part of the call path: Extra-P wants all paths to have the same values of all
    parameters. Of paths with others than most have, nothing is written.
    """
    paths: dict[str, list[Measurement]] = {}
    for one in found:
        size = (f"{one.nbytes} bytes",) if one.nbytes else ()
        path = "->".join(part.replace("->", " ") for part in (*one.name, *size))
        paths.setdefault(path, []).append(one)
    ranks = {
        path: frozenset(one.point.setup.ranks for one in rows) for path, rows in paths.items()
    }
    # Of those that as many paths have, the one with more numbers of ranks.
    usual = max(Counter(ranks.values()).items(), key=lambda item: (item[1], len(item[0])))[0]
    for path in (path for path in paths if ranks[path] == usual):
        for one in paths[path]:
            line: dict[str, Any] = {
                "params": {"p": one.point.setup.ranks},
                "callpath": path,
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
        busbw = one.number("busbw_GBps")
        figures = (one.median_us, "us", 0, None, None, busbw, "GB/s", 0, None, None)
        yield "|".join([*(_clean(fact) for fact in facts), *map(_text, figures), ""])


def _clean(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _text(value: object) -> str:
    return "null" if value is None or value != value else str(value)  # noqa: PLR0124 - NaN
