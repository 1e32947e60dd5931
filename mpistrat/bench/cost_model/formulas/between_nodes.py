"""Count what the algorithms between nodes do: kernels/wire/algorithms, and Rabenseifner's.

In all of them `nodes` is p, `nbytes` the array that each node brings or gets, and `lanes` the
ranks of a node that share the work: each carries its slice, all through the node's one link.
`segments` are pieces under way at the same time (kernels/wire/pipeline): the messages of the first
wait for each other, those of the others only have to be sent.
"""

from __future__ import annotations

from mpistrat.bench.cost_model.formulas.counts import Counts

__all__ = [
    "binomial_tree",
    "chain",
    "doubling_steps",
    "rabenseifner_allreduce",
    "recursive_doubling",
    "ring_allgather",
    "ring_allreduce",
    "ring_reduce_scatter",
]


def ring_reduce_scatter(nodes: int, nbytes: float, lanes: int = 1, segments: int = 1) -> Counts:
    """Count p - 1 messages of 1/p of the array, each of which is reduced (ring.h)."""
    share = (nodes - 1) / nodes * nbytes
    return Counts(nodes - 1, (nodes - 1) * (segments - 1), share, reduced=share / lanes)


def ring_allgather(nodes: int, nbytes: float, segments: int = 1) -> Counts:
    """Count p - 1 messages of 1/p of the array (ring.h)."""
    return Counts(nodes - 1, (nodes - 1) * (segments - 1), (nodes - 1) / nodes * nbytes)


def ring_allreduce(nodes: int, nbytes: float, lanes: int = 1, segments: int = 1) -> Counts:
    """Count a reduce-scatter and an all-gather around the ring: 2(p - 1)/p of the array."""
    scattered = ring_reduce_scatter(nodes, nbytes, lanes, segments)
    return scattered + ring_allgather(nodes, nbytes, segments)


def doubling_steps(nodes: int) -> int:
    """Return the messages that wait for each other: log2 p, and 2 where p is no power of two."""
    whole = nodes.bit_length() - 1
    return whole if nodes == 1 << whole else whole + 2


def recursive_doubling(nodes: int, nbytes: float, lanes: int = 1, segments: int = 1) -> Counts:
    """Count the whole array in each of the steps (recursive_doubling.h)."""
    steps = doubling_steps(nodes)
    whole = nodes.bit_length() - 1
    combined = whole + (nodes != 1 << whole)
    return Counts(steps, steps * (segments - 1), steps * nbytes, reduced=combined * nbytes / lanes)


def rabenseifner_allreduce(nodes: int, nbytes: float, lanes: int = 1) -> Counts:
    """Count halving and doubling: 2 log2 p messages, 2(p - 1)/p of the array.

    The kernels do not have it: it is what they are compared with. Nodes beyond the last power of
    two send all of theirs to another one first and get the result last.
    """
    full = 1 << (nodes.bit_length() - 1)
    share = (full - 1) / full * nbytes
    halving = Counts(2 * (full.bit_length() - 1), 0, 2 * share, reduced=share / lanes)
    if full == nodes:
        return halving
    return halving + Counts(2, 0, 2 * nbytes, reduced=nbytes / lanes)


def binomial_tree(nodes: int, nbytes: float, segments: int = 1) -> Counts:
    """Count ceil(log2 p) messages of the root's, each of the whole array (tree.h)."""
    depth = (nodes - 1).bit_length()
    return Counts(depth, depth * (segments - 1), depth * nbytes)


def chain(nodes: int, nbytes: float, segment_bytes: float, reduces: int = 0) -> Counts:
    """Count a ring on which one node's block alone travels, in segments, over p - 1 links.

    ``bcast`` and ``reduce`` of long arrays (ring.h, Segments::begin_rooted). The array takes its
    time once, and its first segment once more for each further link. `reduces` is the number of
    ranks that combine what passes through a node, 0 for a copy.
    """
    if nodes < 2:
        return Counts()
    segments = max(-(-nbytes // segment_bytes), 1)
    on_wire = nbytes + (nodes - 2) * min(segment_bytes, nbytes)
    return Counts(nodes - 1, segments - 1, on_wire, reduced=on_wire / reduces if reduces else 0)
