"""Count what calls by messages from rank to rank do (kernels/wire/direct_messages.cc)."""

from __future__ import annotations

from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Layout

__all__ = ["bruck_allgather", "exchange_all", "gather_to_root"]


def gather_to_root(layout: Layout, nbytes: float) -> Counts:
    """Count a message of each rank, which the root gets or sends, and the link of its node."""
    away = layout.ranks - layout.most
    return Counts(1, layout.ranks - 2, away * nbytes / layout.ranks)


def exchange_all(layout: Layout, nbytes: float) -> Counts:
    """Count the messages of every rank to every other; `nbytes` is what one rank sends to all."""
    away = layout.ranks - layout.most
    return Counts(1, layout.ranks - 2, layout.most * away * nbytes / layout.ranks)


def bruck_allgather(layout: Layout, nbytes: float) -> Counts:
    """Count ceil(log2 P) steps, in each of which a rank gets twice as many blocks as before.

    Of the ranks of a node, which follow each other, those at its end hear from other nodes.
    """
    block, have, messages, on_wire = nbytes / layout.ranks, 1, 0, 0.0
    while have < layout.ranks:
        blocks = min(have, layout.ranks - have)
        on_wire += min(have, layout.most) * blocks * block
        messages += 1
        have *= 2
    return Counts(messages, 0, on_wire)
