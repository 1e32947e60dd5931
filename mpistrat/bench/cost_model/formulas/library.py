"""Count what a call of the library does: which algorithm it takes at which size (wire.cc)."""

from __future__ import annotations

from dataclasses import replace

from mpistrat import built_in_sizes
from mpistrat.bench.cost_model.formulas import between_nodes as between
from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.cost_model.formulas.messages import (
    bruck_allgather,
    exchange_all,
    gather_to_root,
)
from mpistrat.bench.cost_model.formulas.on_node import far_share, on_node
from mpistrat.bench.cost_model.formulas.segments import (
    Cut,
    cut_owned,
    cut_ring,
    cut_rooted,
    cut_whole,
    is_ring,
)

__all__ = ["HEAD_BYTES", "OPS", "algorithm_name", "call", "header_exchange", "long_allreduce"]

OPS = (
    *("allreduce", "reduce", "bcast", "allgather", "reduce_scatter"),
    *("gather", "scatter", "alltoall", "barrier"),
)
"""Operations that have formulas."""

HEAD_BYTES = 64
"""What leaders of nodes send of a header (kernels/wire/header_exchange.h)."""

_SHORT_BLOCKS = 1 << 10  # kernels/wire/short_blocks.h
_REDUCED = ("allreduce", "reduce", "bcast", "reduce_scatter")


def call(op: str, nbytes: float, layout: Layout) -> Counts:
    """Return the counts of one call; `nbytes` is as ``bench collectives`` has it."""
    if layout.nodes == 1:
        return on_node(op, nbytes, layout.node)
    if _is_short(op, nbytes, layout):
        return header_exchange(layout, _carried(op, nbytes, layout))
    return header_exchange(layout) + _data(op, nbytes, layout)


def header_exchange(layout: Layout, payload: float = 0) -> Counts:
    """Count the comparison of headers, with a short array that travels with them.

    The ranks of a node show theirs (one step), the leaders combine one a node by recursive
    doubling, and tell their nodes (another step).
    """
    if layout.nodes == 1:
        return on_node("barrier", 0, layout.node)
    doubling = between.recursive_doubling(layout.nodes, HEAD_BYTES + payload)
    reduced = between.recursive_doubling(layout.nodes, payload).reduced
    wire = replace(doubling, reduced=reduced)
    if layout.most == 1:
        return wire
    others = (layout.most - 1) * payload
    far = far_share(layout.node) * others
    data = Counts(copied=2 * payload, far_bytes=far, reduced=layout.most * payload)
    return wire + on_node("barrier", 0, layout.node) * 2 + data


def long_allreduce(layout: Layout, nbytes: float, middle: Counts) -> Counts:
    """Return an all-reduce of several nodes, `middle` of which is what happens between them."""
    node = on_node("reduce_scatter", nbytes, layout.node)
    return node + middle + on_node("allgather", nbytes, layout.node)


def algorithm_name(op: str, nbytes: float, layout: Layout) -> str:
    """Return the name of the algorithm that carries a call, for tables and statements."""
    if layout.nodes == 1:
        return "shared memory"
    if op == "barrier" or _is_short(op, nbytes, layout):
        return "with the headers"
    if op in {"gather", "scatter", "alltoall"}:
        return "direct messages"
    if is_ring(nbytes, layout):
        return "chain" if op in {"reduce", "bcast"} else "ring"
    return {"bcast": "binomial tree", "allgather": "Bruck"}.get(op, "recursive doubling")


def _is_short(op: str, nbytes: float, layout: Layout) -> bool:
    if op in _REDUCED:
        return nbytes <= built_in_sizes.SHORT_BYTES
    return op == "barrier" or 0 < _carried(op, nbytes, layout) <= _SHORT_BLOCKS


def _carried(op: str, nbytes: float, layout: Layout) -> float:
    """Return the bytes that travel with the headers: of an all-to-all those of all ranks."""
    return nbytes * layout.ranks if op == "alltoall" else nbytes


def _data(op: str, nbytes: float, layout: Layout) -> Counts:
    if op in {"gather", "scatter"}:
        return gather_to_root(layout, nbytes)
    if op == "alltoall":
        return exchange_all(layout, nbytes)
    if not is_ring(nbytes, layout):
        return _whole(op, nbytes, layout)
    if op == "allreduce":
        segments = cut_ring(nbytes, layout).count
        ring = between.ring_allreduce(layout.nodes, nbytes, layout.lanes, segments)
        return long_allreduce(layout, nbytes, ring)
    return _half(op, nbytes, layout)


def _whole(op: str, nbytes: float, layout: Layout) -> Counts:
    """Count what goes in as few steps as possible."""
    segments = cut_whole(nbytes, layout).count
    if op == "allgather":
        return bruck_allgather(layout, nbytes)
    if op == "bcast":
        tree = between.binomial_tree(layout.nodes, nbytes, segments)
        return _spread(nbytes, layout) + tree
    doubling = between.recursive_doubling(layout.nodes, nbytes, layout.lanes, segments)
    return long_allreduce(layout, nbytes, doubling)


def _half(op: str, nbytes: float, layout: Layout) -> Counts:
    """Count the half of a ring that reduces, or the one that copies."""
    own, nodes = cut_owned(nbytes, layout), layout.nodes
    if op == "allgather":
        ring = between.ring_allgather(nodes, nbytes, own.count)
        return ring + _spread(nbytes, layout)
    collected = on_node("reduce_scatter", nbytes, layout.node)
    if op == "reduce_scatter":
        return collected + between.ring_reduce_scatter(nodes, nbytes, layout.lanes, own.count)
    rooted: Cut = cut_rooted(nbytes, layout)
    if op == "bcast":
        return _spread(nbytes, layout) + between.chain(nodes, nbytes, rooted.nbytes)
    return collected + between.chain(nodes, nbytes, rooted.nbytes, layout.lanes)


def _spread(nbytes: float, layout: Layout) -> Counts:
    """Count the copies of what has come to a node, by its ranks."""
    return on_node("allgather", nbytes, layout.node)
