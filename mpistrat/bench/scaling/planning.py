"""Plan the runs of a suite: which are left to do, in random order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mpistrat.bench.results.point import Point, Setup
from mpistrat.bench.scaling.allocation import Allocation
from mpistrat.bench.scaling.case_options import as_texts
from mpistrat.bench.scaling.suite import Run, Suite
from mpistrat.errors import UsageError

__all__ = ["Planned", "plan"]


@dataclass(frozen=True)
class Planned:
    """A run that is to be done.

    Attributes
    ----------
    setup
        What is run.
    repeat
        Which of the setup's runs it is, from 0.
    timeout_s
        Its longest time, in seconds.
    """

    setup: Setup
    repeat: int
    timeout_s: float


def plan(suite: Suite, allocation: Allocation, done: Iterable[Point], seed: int) -> list[Planned]:
    """Return the runs of a suite that are not done, all first ones before all second ones.

    Within these, the order is random: what changes on the machine with time then hits all setups
    alike.

    Raises
    ------
    UsageError
        The allocation has not the nodes that the suite asks for, or no run is left of it.
    """
    had = {(_key(point.setup), point.repeat) for point in done}
    planned = list(_all(suite, allocation))
    if not planned:
        raise UsageError(
            "the suite has no run here: its ranks and nodes leave none, see least_ranks, ranks and"
            " nodes"
        )
    runs = [one for one in planned if (_key(one.setup), one.repeat) not in had]
    random.Random(seed).shuffle(runs)
    return sorted(runs, key=lambda one: one.repeat)


def _all(suite: Suite, allocation: Allocation) -> Iterator[Planned]:
    seen: Counter[str] = Counter()
    for run in suite.run:
        for setup in _setups(suite, run, allocation):
            for _ in range(run.repeats or suite.repeats):
                yield Planned(setup, seen[_key(setup)], run.timeout_s or suite.timeout_s)
                seen[_key(setup)] += 1


def _setups(suite: Suite, run: Run, allocation: Allocation) -> Iterator[Setup]:
    options = as_texts(run.case, run.options)
    for ranks in run.ranks or suite.ranks or allocation.rank_counts():
        for nodes in run.nodes or suite.nodes or (allocation.fewest_nodes(ranks),):
            # Of a grid of ranks and nodes, what fits and has as many ranks on each node.
            is_grid = len(run.nodes or suite.nodes or ()) > 1
            fits = not ranks % nodes and ranks <= nodes * allocation.per_node
            if ranks < max(run.least_ranks, nodes) or (is_grid and not fits):
                continue
            allocation.check(ranks, nodes)
            yield Setup(case=run.case, options=options, ranks=ranks, nodes=nodes)


def _key(setup: Setup) -> str:
    options = dict(sorted(setup.options.items()))
    return setup.model_copy(update={"options": options}).model_dump_json()
