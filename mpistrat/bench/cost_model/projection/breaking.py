"""Say what breaks first as ranks are added: sentences, each computed from the fitted model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.formulas import between_nodes as between
from mpistrat.bench.cost_model.formulas.counts import LATENCY, ON_NODE, VOLUME, Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node
from mpistrat.bench.cost_model.formulas.library import algorithm_name, call, header_exchange
from mpistrat.bench.cost_model.projection.algorithms import ALLREDUCES, BROADCASTS
from mpistrat.bench.cost_model.projection.falling import falling_all_to_all
from mpistrat.bench.cost_model.projection.series import step_band
from mpistrat.bench.cost_model.projection.step import StepWork
from mpistrat.bench.cost_model.projection.thresholds import (
    MOST_RANKS,
    first_layout,
    layouts_up_to,
)
from mpistrat.bench.cost_model.readable import bytes_text, count_text, percent, seconds_text

__all__ = ["Statement", "network_statements"]

_SHARE = 0.1  # of a call: what the headers take beyond it is said
_LEAST_EFFICIENCY = 0.5
_LINE_BYTES = 256  # MPISTRAT_LINE_BYTES (kernels/include/mpistrat/calls.h)
_BLOCK = 8
_FEWEST_NODES = 2


@dataclass(frozen=True)
class Statement:
    """A sentence about growing numbers of ranks.

    Attributes
    ----------
    text
        The sentence.
    ranks
        From which it is so; None if that is never the case, or for none in particular.
    breaks
        Whether something stops scaling there.
    happens
        Whether it happens up to `MOST_RANKS`; if not, the text is what does not happen.
    """

    text: str
    ranks: float | None = None
    breaks: bool = True
    happens: bool = True


def network_statements(fit: MachineFit, work: StepWork, node: Node) -> list[Statement]:
    """Return all of collectives and steps over several nodes."""
    return [
        _ring_latency(fit, work, node),
        *_algorithm_changes(fit, work, node),
        _chain_latency(fit, work, node),
        *_header_share(fit, work, node),
        _all_to_all(fit, work, node),
        *(
            Statement(text, ranks, breaks=False)
            for text, ranks in falling_all_to_all(fit, _BLOCK, node)
        ),
        *_efficiency(fit, work, node),
        _table_memory(),
    ]


def _crossing(subject: str, holds: Callable[[Layout], bool], node: Node, last: str) -> Statement:
    """Say from where on `holds`, or else what is so at the last, the most ranks."""
    found = first_layout(holds, node)
    if found is None:
        return Statement(f"{subject} ({last} at {MOST_RANKS:,} ranks)", happens=False)
    where = "already at" if found.nodes == _FEWEST_NODES else "from"
    return Statement(f"{subject} {where} {count_text(found.ranks)} ranks", found.ranks)


def _latency_share(fit: MachineFit, counts: Counts) -> float:
    latency = fit.seconds(counts.only(*LATENCY))
    return latency / max(latency + fit.seconds(counts.only(*VOLUME)), 1e-300)


def _last(node: Node) -> Layout:
    return list(layouts_up_to(node))[-1]


def _ring_latency(fit: MachineFit, work: StepWork, node: Node) -> Statement:
    def share(layout: Layout) -> float:
        return _latency_share(fit, ALLREDUCES["ring"](work.nbytes, layout))

    return _crossing(
        f"all-reduce of {bytes_text(work.nbytes)} on a ring: the latency term exceeds the"
        " bandwidth term",
        lambda layout: share(layout) > 1 / 2,
        node,
        f"{percent(share(_last(node)))} is latency",
    )


def _algorithm_changes(fit: MachineFit, work: StepWork, node: Node) -> Iterator[Statement]:
    """Say where the library takes another algorithm, and what that costs."""
    before: Layout | None = None
    for layout in layouts_up_to(node):
        names = [
            algorithm_name("allreduce", work.nbytes, one) for one in (before or layout, layout)
        ]
        if before is not None and names[0] != names[1]:
            times = [fit.seconds(call("allreduce", work.nbytes, one)) for one in (before, layout)]
            other = fit.seconds(
                ALLREDUCES["Rabenseifner (not in the library)"](work.nbytes, layout)
            )
            yield Statement(
                f"all-reduce of {bytes_text(work.nbytes)}: above {count_text(before.ranks)} ranks"
                f" the library changes from {names[0]} to {names[1]}, as a node's blocks are"
                f" below 16 KiB: {seconds_text(times[0])} become {seconds_text(times[1])};"
                f" Rabenseifner's algorithm would take {seconds_text(other)} there",
                layout.ranks,
                times[1] > times[0],
            )
        before = layout


def _chain_latency(fit: MachineFit, work: StepWork, node: Node) -> Statement:
    """Say where a broadcast along a chain takes longer than by a tree."""

    def ratio(layout: Layout) -> float:
        chain, tree = (
            BROADCASTS[name](work.nbytes, layout) for name in ("chain", "binomial tree")
        )
        return fit.seconds(chain) / fit.seconds(tree)

    return _crossing(
        f"broadcast of {bytes_text(work.nbytes)}: the chain of nodes takes longer than a binomial"
        " tree",
        lambda layout: ratio(layout) > 1,
        node,
        f"{ratio(_last(node)):.2g} of the tree's time",
    )


def _header_share(fit: MachineFit, work: StepWork, node: Node) -> Iterator[Statement]:
    """Say what the comparison of headers costs of a call."""
    for nbytes in (_BLOCK, 64 << 10, work.nbytes):

        def share(layout: Layout, nbytes: int = nbytes) -> float:
            whole = fit.seconds(call("allreduce", nbytes, layout))
            if nbytes == _BLOCK:  # it travels with the headers, which make messages longer
                doubling = between.recursive_doubling(layout.nodes, nbytes)
                node = header_exchange(layout, nbytes).only(*ON_NODE)
                return 1 - fit.seconds(doubling + node) / whole
            return fit.seconds(header_exchange(layout)) / whole

        said = _crossing(
            f"the check that all ranks call the same takes over {_SHARE:.0%} of an all-reduce of"
            f" {bytes_text(nbytes)}",
            lambda layout: share(layout) > _SHARE,
            node,
            percent(share(_last(node))),
        )
        yield replace(said, breaks=False)  # it slows calls by a share, and no more


def _all_to_all(fit: MachineFit, work: StepWork, node: Node) -> Statement:
    def seconds(layout: Layout) -> float:
        return fit.seconds(call("alltoall", _BLOCK * layout.ranks, layout))

    limit = max(work.alone_s, 1e-6)
    subject, last = f"an all-to-all of {_BLOCK} B a pair", seconds(_last(node))
    if not fit.seconds(Counts(sends=1)) and last <= limit:
        return Statement(
            f"{subject} takes at {MOST_RANKS:,} ranks at least {seconds_text(last)}; the cost of"
            " further messages could not be fitted",
            breaks=False,
        )
    return _crossing(
        f"{subject} takes longer than the computation of the step ({work.title})",
        lambda layout: seconds(layout) > limit,
        node,
        seconds_text(last),
    )


def _efficiency(fit: MachineFit, work: StepWork, node: Node) -> Iterator[Statement]:
    for is_strong, name in ((False, "weak"), (True, "strong")):

        def efficiency(layout: Layout, is_strong: bool = is_strong) -> float:
            ideal = work.alone_s / (layout.ranks if is_strong else 1)
            return ideal / step_band(fit, work, layout, is_strong).value

        yield _crossing(
            f"{name} scaling of the step ({work.title}): efficiency below {_LEAST_EFFICIENCY:.0%}",
            lambda layout: efficiency(layout) < _LEAST_EFFICIENCY,
            node,
            percent(efficiency(_last(node))),
        )


def _table_memory() -> Statement:
    nbytes = bytes_text(_LINE_BYTES * MOST_RANKS)
    return Statement(
        f"each communicator keeps a table of all ranks' headers on each rank: {nbytes} at"
        f" {MOST_RANKS:,} ranks",
        None,
        breaks=False,
    )
