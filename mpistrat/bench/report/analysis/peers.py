"""Compute how many times as fast as its peers a measurement is, by the times that are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import median
from typing import Any

from mpistrat.bench.report.analysis.intervals import Interval, record_interval
from mpistrat.bench.report.analysis.measurement import Measurement, groups

__all__ = ["with_ratios"]

_OF_A_SIDE = ("side", "kind", "backend")


def with_ratios(found: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements with their ratios over the peers that their records name."""
    settings = groups(found, _setting)
    return [replace(m, over=_over(m, settings[_setting(m)])) for m in found]


def _setting(m: Measurement) -> str:
    """Return what all sides have in common that were measured in turn."""
    what, options = json.loads(m.identity)
    left = (*_OF_A_SIDE, "op") if m.case == "step" else _OF_A_SIDE
    common = {key: value for key, value in what.items() if key not in left}
    return json.dumps([common, options], sort_keys=True)


def _over(m: Measurement, sides: Sequence[Measurement]) -> dict[str, Interval]:
    names = dict.fromkeys(name for one in m.runs.values() for name in _peers(one))
    found = {}
    for name in names:
        peer = next((one for one in sides if _is_named(one, name) and one.interval), None)
        ratio = _told(m, name) if peer is None else _ratio(m, peer)
        if ratio is not None:
            found[name] = ratio
    return found


def _peers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratios over peers of a record: of ``ps`` all sides but ours and copies."""
    found = {}
    for key in ("ratios", "speedup"):
        told = record.get(key)
        for name, ratio in told.items() if isinstance(told, Mapping) else ():
            is_peer = key == "speedup" or not (name.startswith("mpistrat") or name == "memcpy")
            if is_peer and isinstance(ratio, (int, float)) and isfinite(ratio):
                found[name] = float(ratio)
    return found


def _is_named(m: Measurement, name: str) -> bool:
    return m.side == name or m.side.startswith(f"{name}, ")


def _ratio(m: Measurement, peer: Measurement) -> Interval:
    """Return the ratio of the medians, with the range of the runs that measured both."""
    mine, theirs = _medians(m), _medians(peer)
    by_run = [theirs[number] / mine[number] for number in mine if number in theirs]
    middle = peer.time.median / m.time.median
    ends = (min([middle, *by_run]), middle, max([middle, *by_run]))
    return Interval(*ends, len(by_run), 0.0, max(1, len(by_run)))


def _told(m: Measurement, name: str) -> Interval | None:
    """Return the ratio of the records, as the peer's times are not known."""
    values = [told[name] for one in m.runs.values() if name in (told := _peers(one))]
    if not values:
        return None
    return Interval(min(values), median(values), max(values), len(values), 0.0, len(values))


def _medians(m: Measurement) -> dict[int, float]:
    found = {number: record_interval(one) for number, one in m.runs.items()}
    return {number: one.median for number, one in found.items() if one is not None}
