"""Write a model as JSON, for the report's plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpistrat.bench.cost_model.fitting.fit import BAND
from mpistrat.bench.cost_model.model import NEVER, CostModel
from mpistrat.bench.cost_model.projection.series import RANKS, Series, largest_allreduce
from mpistrat.errors import UsageError

__all__ = ["FORMAT", "as_json", "write_model"]

FORMAT = "mpistrat-model-1"
_LEAST_SHARE = 1e-3  # of the value: axes of the plots are logarithmic, and have no 0


def write_model(path: Path, model: CostModel) -> None:
    """Write a model to a file; raise `UsageError` if that cannot be done."""
    text = json.dumps(as_json(model), indent=1) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error}; expected a file in a folder that exists"
        ) from error


def as_json(model: CostModel) -> dict[str, Any]:
    """Return the model: sentences, series of seconds by ranks, and how it was validated."""
    return {
        "format": FORMAT,
        "title": _title(model),
        "statements": _statements(model),
        "series": [one for one in _lines(model) if one["x"]],
        "validation": [
            {
                "what": one.what,
                "predicted": one.predicted,
                "measured": one.measured,
                "error": one.error,
            }
            for one in model.comparisons
        ],
    }


def _statements(model: CostModel) -> list[str]:
    """Return the sentences, what never happens, and what bands are where there are any."""
    never = [f"{NEVER}: {one}" for one in model.never]
    bands = [f"Bands: {BAND}"] if model.fit.has_network else []
    return [*model.sentences, *bands, *never]


def _title(model: CostModel) -> str:
    title = (
        f"Cost model of {len(model.fit.measured)} measured collectives, up to"
        f" {model.fit.most_ranks} ranks"
    )
    return f"{title}; step {model.work.description}" if model.fit.has_network else title


def _lines(model: CostModel) -> list[dict[str, Any]]:
    """Return measured times, then predictions, and extrapolations under names of their own.

    Without a network there are none: on one node there is nothing to project to.
    """
    if not model.fit.has_network:
        return []
    powers = [*(1 << power for power in range(RANKS[-1].bit_length())), RANKS[-1]]
    series = model.series(powers)
    largest, times = largest_allreduce(
        model.fit, [*model.fit.measured, *model.unseen], powers, model.node
    )
    if largest.title not in [one.title for one in series]:
        series.append(largest)
    found = {largest.title: times, **model.step_times()}
    lines = [_measured_line(title, by_ranks) for title, by_ranks in found.items()]
    for one in series:
        drawn = [ranks for ranks, band in one.bands.items() if band.value > 0]
        near = [ranks for ranks in drawn if ranks <= model.limit]
        far = [ranks for ranks in drawn if ranks > model.limit]
        lines += [_line(one, near, one.title)]
        lines += [_line(one, near[-1:] + far, f"{one.title} (extrapolation)")] if far else []
    return lines


def _line(series: Series, ranks: Sequence[int], name: str) -> dict[str, Any]:
    bands = [series.bands[one] for one in ranks]
    return {
        "name": name,
        "x": list(ranks),
        "y": [one.value for one in bands],
        "low": [max(one.low, one.value * _LEAST_SHARE) for one in bands],
        "high": [one.high for one in bands],
        "measured": False,
    }


def _measured_line(title: str, found: Mapping[int, float]) -> dict[str, Any]:
    times = [found[ranks] for ranks in sorted(found)]
    return {
        "name": f"{title} (measured)",
        "x": sorted(found),
        "y": times,
        "low": times,
        "high": times,
        "measured": True,
    }
