"""Series of predicted times by ranks, for tables and for the report's plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mpistrat.bench.cost_model.fitting.fit import Band, MachineFit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, layout_of
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.bench.cost_model.projection.algorithms import (
    ALLREDUCES,
    BROADCASTS,
    LIBRARY,
    SHORT,
    Formula,
    parameter_servers,
)
from mpistrat.bench.cost_model.projection.step import StepWork
from mpistrat.bench.cost_model.readable import bytes_text

__all__ = ["RANKS", "Series", "largest_allreduce", "project", "step_band", "step_name"]

RANKS = (1, 8, 64, 512, 4_096, 32_768, 100_000)
"""For how many ranks times are predicted."""

_WORKERS_A_SERVER = 8


@dataclass(frozen=True)
class Series:
    """Predicted times by ranks.

    Attributes
    ----------
    group
        What is compared: series of one group are drawn together.
    name
        Of the algorithm, or the way of scaling.
    bands
        By ranks.
    ideal_s
        The time of one rank, where an efficiency is meant; of strong scaling it is divided by the
        ranks. None elsewhere.
    """

    group: str
    name: str
    bands: Mapping[int, Band]
    ideal_s: Callable[[int], float] | None = None

    @property
    def title(self) -> str:
        """Both as one name."""
        return f"{self.group}: {self.name}"

    def efficiency(self, ranks: int) -> float:
        """Return the ideal time over the predicted one."""
        if self.ideal_s is None:
            return 1.0
        return self.ideal_s(ranks) / self.bands[ranks].value


def project(
    fit: MachineFit,
    work: StepWork,
    ranks: Sequence[int],
    ranks_per_node: int,
    has_servers: bool = False,
) -> list[Series]:
    """Return all series: collectives by algorithm, steps by way of scaling, parameter servers.

    Parameters
    ----------
    fit
        Of a machine with a network.
    has_servers
        Whether parameter servers are projected, too.
    """
    layouts = [layout_of(one, ranks_per_node) for one in ranks]
    size = bytes_text(work.nbytes)
    return [
        *_collectives(fit, work, layouts, f"all-reduce of {size}", ALLREDUCES),
        *_collectives(fit, work, layouts, f"broadcast of {size}", BROADCASTS),
        *_collectives(fit, work, layouts, "short calls", SHORT),
        *_steps(fit, work, layouts),
        *(_served_steps(fit, work, layouts) if has_servers else ()),
    ]


def _collectives(
    fit: MachineFit,
    work: StepWork,
    layouts: Sequence[Layout],
    group: str,
    formulas: Mapping[str, Formula],
) -> Iterator[Series]:
    for name, formula in formulas.items():
        several = [one for one in layouts if one.ranks > 1]
        bands = {one.ranks: fit.band(formula(work.nbytes, one)) for one in several}
        yield Series(group, name, bands)


def largest_allreduce(
    fit: MachineFit, measured: Sequence[Measured], ranks: Sequence[int], ranks_per_node: int
) -> tuple[Series, dict[int, float]]:
    """Return the series of the longest measured all-reduce, and its measured times by ranks.

    Of these only such as have so many ranks on a node; beside `ranks`, it is predicted for theirs.
    """
    reduced = [one for one in measured if one.op == "allreduce"]
    nbytes = max((one.nbytes for one in reduced), default=0)
    group = f"all-reduce of {bytes_text(nbytes)}"
    times = {
        one.layout.ranks: one.time_s
        for one in reduced
        if one.nbytes == nbytes and one.layout == layout_of(one.layout.ranks, ranks_per_node)
    }
    several = sorted({*times, *(one for one in ranks if one > 1)})
    layouts = [layout_of(one, ranks_per_node) for one in several]
    bands = {one.ranks: fit.band(call("allreduce", nbytes, one)) for one in layouts}
    return Series(group, LIBRARY, bands), times


def step_name(work: StepWork, is_strong: bool) -> str:
    """Return the name of a step's series, with the batch that strong scaling divides."""
    if not is_strong:
        return "weak scaling"
    return f"strong scaling{'' if work.batch is None else f' of {work.batch:g} examples'}"


def _steps(fit: MachineFit, work: StepWork, layouts: Sequence[Layout]) -> Iterator[Series]:
    for is_strong in (False, True):
        bands = {one.ranks: step_band(fit, work, one, is_strong) for one in layouts}
        name = step_name(work, is_strong)
        yield Series(f"step ({work.subject})", name, bands, _ideal(work, is_strong))


def _served_steps(fit: MachineFit, work: StepWork, layouts: Sequence[Layout]) -> Iterator[Series]:
    for each, name in ((None, "1 server"), (_WORKERS_A_SERVER, "1 server for 8 workers")):
        bands = {}
        for one in layouts:
            servers = max(one.ranks // each, 1) if each else 1
            counts = parameter_servers(work.nbytes, one.ranks, servers, True)
            bands[one.ranks] = fit.band(counts, work.alone_s)
        yield Series(
            f"step with parameter servers ({work.subject})", name, bands, _ideal(work, False)
        )


def step_band(fit: MachineFit, work: StepWork, layout: Layout, is_strong: bool) -> Band:
    """Return the time of a step: input, computation, and the all-reduce that they do not hide.

    In strong scaling the batch of all ranks stays, and input and computation are divided.
    """
    share = layout.ranks if is_strong else 1
    exposed = Counts()
    if layout.ranks > 1:
        all_reduce = ALLREDUCES[LIBRARY](work.nbytes, layout)
        exposed = all_reduce * (1 - work.hidden)
    return fit.band(exposed, work.alone_s / share)


def _ideal(work: StepWork, is_strong: bool) -> Callable[[int], float]:
    return lambda ranks: work.alone_s / (ranks if is_strong else 1)
