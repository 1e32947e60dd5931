"""A table of where results are from: machines, versions, batch jobs, placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mpistrat.bench.report.section import Table
from mpistrat.bench.report.units import counted, plain
from mpistrat.bench.results.point import Point

__all__ = ["machine_changes", "machine_table", "mixed_machines", "placement_of"]

_NAMES = {
    "date": "date",
    "host": "processor",
    "machine": "architecture",
    "cores": "CPUs of a machine",
    "mpistrat": "mpistrat",
    "git": "commit",
    "mpi": "MPI",
    "mpi4py": "mpi4py",
    "python": "Python",
    "numpy": "NumPy",
}
_MOST = 6
_OF_MACHINE = ("host", "machine", "cores", "mpi")


def machine_table(points: Sequence[Point]) -> Table:
    """Return the facts of all points; of facts that differ, how many points have each value."""
    keys = dict.fromkeys((*_NAMES, *(key for point in points for key in point.facts)))
    rows = [[_NAMES.get(key, plain(key)), _told(p.facts.get(key) for p in points)] for key in keys]
    jobs = dict.fromkeys(key for point in points for key in point.job)
    rows += [[f"job: {plain(key)}", _told(p.job.get(key) for p in points)] for key in jobs]
    rows.append(["site", _told(point.site for point in points)])
    rows.append(["placement", _told(placement_of(point) or None for point in points)])
    rows = [row for row in rows if row[1]]
    return Table("Machine and versions", ("fact", "value"), rows)


def mixed_machines(points: Sequence[Point]) -> list[str]:
    """Return a warning if points are of several machines or MPI libraries; else nothing."""
    told = [f"{_NAMES[key]}: {_told(_facts(points, key))}" for key in _differing(points)]
    if not told:
        return []
    return [
        "These results are of different machines or MPI libraries, and repeats on several of them"
        f" are merged: {'. '.join(told)}."
    ]


def machine_changes(old: Sequence[Point], new: Sequence[Point]) -> list[str]:
    """Return a line for each fact of the machine or of MPI that differs between two files."""
    found = []
    for key in _OF_MACHINE:
        before, after = (_told(_facts(points, key)) for points in (old, new))
        if set(_facts(old, key)) != set(_facts(new, key)):
            found.append(f"{_NAMES[key]}: {before or 'unknown'} -> {after or 'unknown'}")
    return found


def _differing(points: Sequence[Point]) -> list[str]:
    return [key for key in _OF_MACHINE if len(set(_facts(points, key))) > 1]


def _facts(points: Sequence[Point], key: str) -> list[str]:
    return [plain(p.facts[key], 160) for p in points if p.facts.get(key) is not None]


def placement_of(point: Point) -> str:
    """Return the hosts of a point, with ranks on each and cores of a rank; empty if unknown."""
    hosts = Counter(one.host for one in point.placement)
    if not hosts:
        return ""
    cores = sorted({len(one.cores) for one in point.placement})
    names = [f"{plain(host)}: {count}" for host, count in list(hosts.items())[:8]]
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    each = str(cores[0]) if len(cores) == 1 else f"{cores[0]} to {cores[-1]}"
    return f"ranks by host {', '.join(names)}{more}; {each} CPUs allowed to a rank"


def _told(values: Iterable[object]) -> str:
    counts = Counter(plain(value, 160) for value in values if value is not None)
    if len(counts) <= 1:
        return next(iter(counts), "")
    most = [f"{value} ({counted(count, 'point')})" for value, count in counts.most_common(_MOST)]
    more = [f"and {len(counts) - _MOST} more values"] if len(counts) > _MOST else []
    return "; ".join([*most, *more])
