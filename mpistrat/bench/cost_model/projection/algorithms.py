"""The algorithms that are projected side by side, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpistrat.bench.cost_model.formulas import between_nodes as between
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.cost_model.formulas.library import call, header_exchange, long_allreduce
from mpistrat.bench.cost_model.formulas.on_node import on_node
from mpistrat.bench.cost_model.formulas.segments import cut_ring, cut_rooted, cut_whole

__all__ = ["ALLREDUCES", "BROADCASTS", "LIBRARY", "SHORT", "Formula", "parameter_servers"]


def _ring(nbytes: float, layout: Layout) -> Counts:
    segments = cut_ring(nbytes, layout).count
    return between.ring_allreduce(layout.nodes, nbytes, layout.lanes, segments)


def _doubling(nbytes: float, layout: Layout) -> Counts:
    segments = cut_whole(nbytes, layout).count
    return between.recursive_doubling(layout.nodes, nbytes, layout.lanes, segments)


def _rabenseifner(nbytes: float, layout: Layout) -> Counts:
    return between.rabenseifner_allreduce(layout.nodes, nbytes, layout.lanes)


def _allreduce(middle: Callable[[float, Layout], Counts]) -> Callable[[float, Layout], Counts]:
    def counts(nbytes: float, layout: Layout) -> Counts:
        if layout.nodes == 1:
            return call("allreduce", nbytes, layout)
        whole = long_allreduce(layout, nbytes, middle(nbytes, layout))
        return header_exchange(layout) + whole

    return counts


def _chain(nbytes: float, layout: Layout) -> Counts:
    segment = cut_rooted(nbytes, layout).nbytes
    middle = between.chain(layout.nodes, nbytes, segment)
    return header_exchange(layout) + middle + on_node("allgather", nbytes, layout.node)


def _tree(nbytes: float, layout: Layout) -> Counts:
    segments = cut_whole(nbytes, layout).count
    middle = between.binomial_tree(layout.nodes, nbytes, segments)
    return header_exchange(layout) + middle + on_node("allgather", nbytes, layout.node)


LIBRARY = "as the library chooses"
"""The name of what the library does, among algorithms."""

Formula = Callable[[float, Layout], Counts]
"""The counts of a call by its bytes and where its ranks are."""

ALLREDUCES: Mapping[str, Formula] = {
    LIBRARY: lambda nbytes, layout: call("allreduce", nbytes, layout),
    "ring": _allreduce(_ring),
    "recursive doubling": _allreduce(_doubling),
    "Rabenseifner (not in the library)": _allreduce(_rabenseifner),
}
"""All-reduces of an array, headers and the nodes' part included."""

BROADCASTS: Mapping[str, Formula] = {
    LIBRARY: lambda nbytes, layout: call("bcast", nbytes, layout),
    "chain": _chain,
    "binomial tree": _tree,
}

SHORT: Mapping[str, Formula] = {
    "all-reduce of 8 B": lambda _, layout: call("allreduce", 8, layout),
    "check that all ranks call the same": lambda _, layout: header_exchange(layout),
    "all-gather of 8 B a rank": lambda _, layout: call("allgather", 8 * layout.ranks, layout),
    "all-to-all of 8 B a pair": lambda _, layout: call("alltoall", 8 * layout.ranks, layout),
}
"""Calls whose latency counts; the size is theirs."""


def parameter_servers(nbytes: float, workers: int, servers: int, is_far: bool) -> Counts:
    """Count what a step of `workers` costs that pull `nbytes`, and then push as many.

    Each server has an equal part, and its link carries that of all workers, in one direction and
    then in the other; a worker's own link carries all of it. On one node it is memory.
    """
    on_wire = 2 * nbytes * max(workers / servers, 1)
    if is_far:
        return Counts(messages=2, sends=2 * (workers - 1), wire_bytes=on_wire)
    return Counts(steps=2 * workers, copied=on_wire)
