"""Merge the records of a measurement's repeats: no outcome is that of one repeat alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["OUTCOMES", "merged_record"]

OUTCOMES = frozenset(
    (
        *("time_us", "steps_us", "rounds_us", "compute_us", "exposed_us", "recorded_us"),
        *("rounds", "steps", "buckets", "times", "median", "speedup", "ratios", "ratio"),
        *("algbw_GBps", "busbw_GBps", "GBps", "examples_per_s", "efficiency", "overlapped"),
        *("parts_us", "by_rank", "by_op", "loss_first", "loss_last", "correct"),
    )
)
"""What a record tells of the outcome; all its other keys say what was measured."""


def merged_record(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a record whose outcomes are the medians over repeats; of extremes, the extremes."""
    keys = dict.fromkeys(key for record in records for key in record)
    return {key: _merged(key, [one[key] for one in records if key in one]) for key in keys}


def _merged(name: str, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known or all(value == known[0] for value in known):
        return known[0] if known else None
    if all(isinstance(value, Mapping) for value in known):
        keys = dict.fromkeys(key for value in known for key in value)
        return {key: _merged(str(key), [v[key] for v in known if key in v]) for key in keys}
    if name == "by_rank" and all(isinstance(value, list) for value in known):
        return _ranks(known)
    if all(isinstance(value, (int, float)) for value in known):
        return _number(name, known)
    return known[0]


def _number(name: str, values: Sequence[float]) -> float:
    if name.startswith("min"):
        return min(values)
    return max(values) if name.startswith("max") else median(values)


def _ranks(repeats: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Merge the times of each rank, which may have been on another machine in each repeat."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for ranks in repeats:
        for one in ranks:
            found.setdefault(int(one["rank"]), []).append(one)
    return [_rank(members) for _, members in sorted(found.items())]


def _rank(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    hosts = dict.fromkeys(str(one["host"]) for one in members)
    return {**merged_record(members), "host": " or ".join(hosts)}
