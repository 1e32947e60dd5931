"""A table of where results are from: machines, versions, batch jobs, placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mpistrat.bench.report.section import Table
from mpistrat.bench.report.units import plain
from mpistrat.bench.results.point import Point

__all__ = ["machine_table", "placement_of"]

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
    counted = Counter(plain(value, 160) for value in values if value is not None)
    if len(counted) <= 1:
        return next(iter(counted), "")
    most = [f"{value} ({count} points)" for value, count in counted.most_common(_MOST)]
    more = [f"and {len(counted) - _MOST} more values"] if len(counted) > _MOST else []
    return "; ".join([*most, *more])
