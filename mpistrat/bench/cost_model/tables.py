"""Print a model: parameters, projections and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
from rich.console import Console
from rich.table import Table

from mpistrat.bench.cost_model.fitting.fit import BAND, MachineFit
from mpistrat.bench.cost_model.fitting.normal_form import NormalForm
from mpistrat.bench.cost_model.formulas.counts import DOMAINS, NAMES, NETWORK, UNITS
from mpistrat.bench.cost_model.model import NEVER, CostModel
from mpistrat.bench.cost_model.projection.series import RANKS, Series
from mpistrat.bench.cost_model.readable import percent, seconds_text
from mpistrat.bench.cost_model.readable_records import left_out_text
from mpistrat.bench.cost_model.validation import Comparison, median_error

__all__ = ["print_model"]

_SCALE = {"us": 1e6, "ns/byte": 1e9}
_GOOD = 0.15
_NO_PROJECTION = "No projection to more ranks: no network was measured or assumed (--network).\n"
_NO_ERROR = "no error: fewer than 4 rank counts measured"
_SHOWN = 80  # characters of a failed point's message


def print_model(console: Console, model: CostModel) -> None:
    """Print parameters, projection, validation, and what follows from them."""
    for point in model.points:
        if point.status != "ok":
            end = " ".join(point.message.split())[-_SHOWN:]
            console.print(f"left out: {point.setup.title}: {point.status}: {end}", markup=False)
    if model.left_out:
        console.print(left_out_text(model.left_out), markup=False)
    _print_parameters(console, model.fit)
    _print_forms(console, model.forms)
    _print_projection(console, model)
    if model.comparisons:
        _print_validation(console, model.comparisons)
    _print_sentences(console, model)


def _print_parameters(console: Console, fit: MachineFit) -> None:
    """Print each parameter with its 95 % interval, and the error of cross-validation."""
    has_domains = any(one.layout.domains > 1 for one in fit.measured)
    table = _table("parameters", ("parameter", "value", "95 % from", "to", "unit"))
    for name, (title, unit) in UNITS.items():
        if (name in NETWORK and not fit.has_network) or (name in DOMAINS and not has_domains):
            continue
        cells = [f"{value * _SCALE[unit]:.3g}" for value in fit.spread(name)]
        is_copied = name not in fit.used and fit.parameters[NAMES.index(name)] > 0
        left_out = "not measured: as the other" if is_copied else "made no difference: left out"
        note = "" if name in fit.used else f" ({left_out})"
        table.add_row(title + note, *cells, unit)
    console.print(table)
    console.print(
        f"{len(fit.measured)} collectives; ten-fold cross-validation: half of the points that a"
        f" fit has not seen are predicted within {percent(float(np.median(fit.errors)))}, nine of"
        f" ten within {percent(float(np.percentile(fit.errors, 90)))}\n"
    )


def _print_forms(console: Console, forms: Mapping[str, NormalForm]) -> None:
    """Print the parts that have no formula, as functions of p ranks."""
    if not forms:
        return
    table = _table("other parts, in seconds by ranks p", ("part", "seconds", "error"))
    for what, form in forms.items():
        error = _NO_ERROR if form.error is None else percent(form.error)
        table.add_row(what, str(form), error)
    console.print(table, "")


def _print_projection(console: Console, model: CostModel) -> None:
    """Print the predicted times of each group, and efficiencies."""
    if not model.fit.has_network:
        console.print(_NO_PROJECTION)
        return
    each = model.node.ranks
    console.print(f"projected step: {model.work.description}; {each} ranks a node", markup=False)
    for group, members in groupby(model.series(RANKS), key=lambda one: one.group):
        found = list(members)
        ranks = sorted({ranks for one in found for ranks in one.bands})
        heads = [f"{one:,}{'*' if one > model.limit else ''}" for one in ranks]
        table = _table(group, ("ranks", *heads))
        for one in found:
            _add_rows(table, one, ranks)
        console.print(table)
    console.print(
        f"* extrapolation: more than 4 times the {model.fit.most_ranks} ranks that were measured."
        f" Second line: the band. {BAND}\n"
    )


def _add_rows(table: Table, series: Series, ranks: Sequence[int]) -> None:
    bands = [series.bands.get(one) for one in ranks]
    table.add_row(series.name, *(seconds_text(b.value) if b else "" for b in bands))
    table.add_row("", *(_interval(b.low, b.high) if b else "" for b in bands), style="dim")
    if series.ideal_s is not None:
        table.add_row("  efficiency", *(percent(series.efficiency(one)) for one in ranks))


def _interval(low: float, high: float) -> str:
    return f"{seconds_text(low)}-{seconds_text(high)}"


def _print_validation(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print each predicted time beside the measured one."""
    table = _table("validation", ("what", "predicted", "measured", "error"))
    for one in comparisons:
        times = seconds_text(one.predicted), seconds_text(one.measured)
        table.add_row(one.what, *times, f"{one.error:+.0%}")
    good = sum(abs(one.error) <= _GOOD for one in comparisons)
    worst = max(comparisons, key=lambda one: abs(one.error))
    console.print(table)
    console.print(
        f"median error {percent(median_error(comparisons))}; {good} of {len(comparisons)} within"
        f" {_GOOD:.0%}; worst: {worst.what}, {worst.error:+.0%}\n"
    )


def _print_sentences(console: Console, model: CostModel) -> None:
    """Print what happens as ranks are added, then what does not happen."""
    for one in model.sentences:
        console.print(f"- {one}", markup=False)
    if model.never:
        console.print(f"{NEVER}:")
    for one in model.never:
        console.print(f"- {one}", markup=False)


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.header_style = "none"
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=number == 0)
    return table
