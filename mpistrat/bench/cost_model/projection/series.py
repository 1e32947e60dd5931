"""Series of predicted times by ranks, for tables and for the report's plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mpistrat.bench.cost_model.fitting.fit import Band, MachineFit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node, layout_of
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
from mpistrat.bench.cost_model.projection.widening import bands_by_ranks
from mpistrat.bench.cost_model.readable import bytes_text

__all__ = ["RANKS", "Series", "largest_allreduce", "project", "step_band", "step_name"]

RANKS = (1, 8, 64, 512, 4_096, 32_768, 100_000)
"""For how many ranks times are predicted."""

_WORKERS_A_SERVER = 8
_Where = tuple[Sequence[int], Node]  # the ranks of a projection, and how many are on a node


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
    node: Node,
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
    where = ranks, node
    size = bytes_text(work.nbytes)
    return [
        *_collectives(fit, work, where, f"all-reduce of {size}", ALLREDUCES),
        *_collectives(fit, work, where, f"broadcast of {size}", BROADCASTS),
        *_collectives(fit, work, where, "short calls", SHORT),
        *_steps(fit, work, where),
        *(_served_steps(fit, work, where) if has_servers else ()),
    ]


def _collectives(
    fit: MachineFit,
    work: StepWork,
    where: _Where,
    group: str,
    formulas: Mapping[str, Formula],
) -> Iterator[Series]:
    for name, formula in formulas.items():

        def predict(layout: Layout, formula: Formula = formula) -> Band:
            return fit.band(formula(work.nbytes, layout), layout)

        yield Series(group, name, bands_by_ranks(predict, *where, first=2))


def largest_allreduce(
    fit: MachineFit, measured: Sequence[Measured], ranks: Sequence[int], node: Node
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
        if one.nbytes == nbytes and one.layout == layout_of(one.layout.ranks, node)
    }
    several = sorted({*times, *(one for one in ranks if one > 1)})

    def predict(layout: Layout) -> Band:
        return fit.band(call("allreduce", nbytes, layout), layout)

    bands = bands_by_ranks(predict, several, node, first=2)
    return Series(group, LIBRARY, bands), times


def step_name(work: StepWork, is_strong: bool) -> str:
    """Return the name of a step's series, with the batch that strong scaling divides."""
    if not is_strong:
        return "weak scaling"
    return f"strong scaling{'' if work.batch is None else f' of {work.batch:g} examples'}"


def _steps(fit: MachineFit, work: StepWork, where: _Where) -> Iterator[Series]:
    for is_strong in (False, True):

        def predict(layout: Layout, is_strong: bool = is_strong) -> Band:
            return step_band(fit, work, layout, is_strong)

        bands = bands_by_ranks(predict, *where)
        name = step_name(work, is_strong)
        yield Series(f"step ({work.subject})", name, bands, _ideal(work, is_strong))


def _served_steps(fit: MachineFit, work: StepWork, where: _Where) -> Iterator[Series]:
    for each, name in ((None, "1 server"), (_WORKERS_A_SERVER, "1 server for 8 workers")):

        def predict(layout: Layout, each: int | None = each) -> Band:
            servers = max(layout.ranks // each, 1) if each else 1
            counts = parameter_servers(work.nbytes, layout.ranks, servers, True)
            return fit.band(counts, layout, work.alone_s)

        title, bands = (
            f"step with parameter servers ({work.subject})",
            bands_by_ranks(predict, *where),
        )
        yield Series(title, name, bands, _ideal(work, False))


def step_band(fit: MachineFit, work: StepWork, layout: Layout, is_strong: bool) -> Band:
    """Return the time of a step: input, computation, and the all-reduce that they do not hide.

    In strong scaling the batch of all ranks stays, and input and computation are divided.
    """
    share = layout.ranks if is_strong else 1
    exposed = Counts()
    if layout.ranks > 1:
        all_reduce = ALLREDUCES[LIBRARY](work.nbytes, layout)
        exposed = all_reduce * (1 - work.hidden)
    return fit.band(exposed, layout, work.alone_s / share)


def _ideal(work: StepWork, is_strong: bool) -> Callable[[int], float]:
    return lambda ranks: work.alone_s / (ranks if is_strong else 1)
