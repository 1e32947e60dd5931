"""Say where a call is predicted to be faster on more ranks, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node
from mpistrat.bench.cost_model.formulas.library import algorithm_name, call
from mpistrat.bench.cost_model.projection.thresholds import layouts_up_to
from mpistrat.bench.cost_model.readable import count_text, seconds_text

__all__ = ["falling_all_to_all"]


def falling_all_to_all(fit: MachineFit, block: int, node: Node) -> Iterator[tuple[str, int]]:
    """Yield a sentence, and from how many ranks it is so, where direct messages are faster.

    Short blocks travel with the headers, each message of which holds those of all ranks; beyond
    1 KiB of them each rank sends its own.
    """
    for before, after in pairwise(layouts_up_to(node)):
        names = [algorithm_name("alltoall", block * one.ranks, one) for one in (before, after)]
        times = [_seconds(fit, block, one) for one in (before, after)]
        if names[0] != names[1] and times[1] < times[0]:
            text = (
                f"an all-to-all of {block} B a pair: above {count_text(before.ranks)} ranks the"
                f" library sends it by {names[1]} instead of {names[0]}, which is faster:"
                f" {seconds_text(times[0])} become {seconds_text(times[1])}"
            )
            yield text + _doubt(fit), after.ranks


def _seconds(fit: MachineFit, block: int, layout: Layout) -> float:
    return fit.seconds(call("alltoall", block * layout.ranks, layout))


def _doubt(fit: MachineFit) -> str:
    if fit.seconds(Counts(sends=1)):
        return ""
    return " (without what further messages cost, for which no value was found)"
