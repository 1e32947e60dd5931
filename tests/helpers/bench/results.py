"""Results of benchmarks with chosen times, as the cases write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.bench.results.point import Placement, Point, Setup

__all__ = [
    "by_rank",
    "collective",
    "every_kind",
    "placed",
    "point",
    "servers",
    "step",
    "times",
    "training",
]


def point(record: dict[str, Any], ranks: int = 2, nodes: int = 1, **fields: Any) -> Point:
    """Return a point with one record, or what `fields` say instead."""
    options = fields.pop("options", {})
    setup = Setup(case=record["case"], options=options, ranks=ranks, nodes=nodes)
    return Point(setup=setup, **{"records": (record,), **fields})


def times(median: float, spread: float) -> dict[str, float]:
    """Return figures whose range is `spread` of the median to both sides."""
    low, high = median * (1 - spread), median * (1 + spread)
    return {"min": low, "median": median, "p99": high, "max": high}


def collective(
    median: float, nbytes: int = 8, spread: float = 0.01, **keys: Any
) -> dict[str, Any]:
    """Return a record of the case collectives, of an allreduce of 21 rounds."""
    return {
        "case": "collectives",
        "side": "shm",
        "kind": "backend",
        "op": "allreduce",
        "dtype": "float32",
        "bytes": nbytes,
        "time_us": times(median, spread),
        "rounds": 21,
        "busbw_GBps": nbytes / median / 1e3,
        "correct": True,
        **keys,
    }


def training(case: str, steps_us: Sequence[float], **keys: Any) -> dict[str, Any]:
    """Return a record of the cases train, strong and weak."""
    return {
        "case": case,
        "family": "arrays",
        "network": "mlp",
        "side": "mpistrat",
        "kind": "backend",
        "global_batch": 256,
        "rank_batch": 64.0,
        "time_us": times(sorted(steps_us)[len(steps_us) // 2], 0.0),
        "steps_us": list(steps_us),
        "parts_us": {"input": 1.0, "compute": 70.0, "communication": 20.0, "idle": 9.0},
        "by_rank": by_rank("n1", "n2"),
        "correct": True,
        **keys,
    }


def by_rank(*hosts: str) -> list[dict[str, Any]]:
    """Return the times of a rank on each host."""
    five = {"min": 60.0, "q1": 65.0, "median": 70.0, "q3": 75.0, "max": 90.0}
    return [{"rank": rank, "host": host, **five} for rank, host in enumerate(hosts)]


def step(side: str, median: float, overlap: bool = False, **keys: Any) -> dict[str, Any]:
    """Return a record of the case step, with 5 ms of computation."""
    in_us = {f"{name}_us": value for name, value in times(median, 0.02).items() if name != "p99"}
    return {
        "case": "step",
        "model": "resnet50",
        "scale": 1.0,
        "compute_ms": 5.0,
        "bucket_bytes": 1 << 20,
        "side": side,
        "kind": "backend",
        "overlap": overlap,
        "rounds": 11,
        "time_us": in_us,
        "compute_us": {"median_us": 5000.0, "min_us": 4900.0, "max_us": 5100.0},
        "overlapped": 0.5 if overlap else None,
        "efficiency": 5000 / median,
        "speedup": {"mpi4py": 1.5},
        "correct": True,
        **keys,
    }


def servers(median_us: float, **keys: Any) -> dict[str, Any]:
    """Return a record of the case ps: 2,000 rows a call."""
    figures = {"median_us": median_us, "min_us": median_us / 2, "max_us": median_us * 2}
    return {
        "case": "ps",
        "kind": "rows",
        "name": "pull",
        "table": [20000, 64],
        "rows": 2000,
        "times": {"mpistrat": figures},
        "median": {"mpistrat": 2000 / median_us},
        "unit": "M rows/s",
        **keys,
    }


def placed(*hosts: str) -> tuple[Placement, ...]:
    """Return a rank with two CPUs on each host."""
    return tuple(
        Placement(rank=rank, host=host, cores=(2 * rank, 2 * rank + 1))
        for rank, host in enumerate(hosts)
    )


def every_kind(host: str = "n1") -> list[Point]:
    """Return results that each kind of figure and table is drawn from; ranks on `host` and n2."""
    sides = {"shm": 1.0, "mpi4py": 2.0, "memcpy": 0.5}
    kinds = {"mpi4py": "peer", "memcpy": "bound"}
    collectives = [
        point(collective(size / 1e3 * factor, size, side=side, kind=kinds.get(side, "backend")))
        for size in (1024, 1 << 20)
        for side, factor in sides.items()
    ]
    scaling = [
        point(_scaled(case, ranks, host), ranks, placement=placed(host, "n2"))
        for case in ("strong", "weak")
        for ranks in (1, 2)
    ]
    steps = [point(step("shm, in sequence", 9000.0)), point(step("shm, overlapped", 7000.0, True))]
    time_us = times(9.0, 0.1)
    files = point({"case": "io", "op": "save", "bytes": 1024, "GBps": 1.0, "time_us": time_us})
    by_op = {"allreduce": {"calls": 3, "bytes": 8, "median_us": 2.0}}
    replay = {"case": "replay", "source": "run.json", "calls": 3, "recorded_us": 9.0}
    other = point({"case": "fit", "side": host, "time_us": time_us})
    failed = point({"case": "train"}, status="failed", message=f"line\n{host} died\n", records=())
    return [
        *(*collectives, *scaling, *steps, point(servers(100.0), ranks=4), files, other, failed),
        point(replay | {"time_us": times(7.0, 0.1), "by_op": by_op}),
    ]


def _scaled(case: str, ranks: int, host: str) -> dict[str, Any]:
    steps_us = [1e5 / (ranks if case == "strong" else 1)] * 6
    return training(case, steps_us, by_rank=by_rank(host, "n2"))
