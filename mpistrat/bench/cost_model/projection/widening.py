"""Predict with bands that are never narrower on more ranks than on fewer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mpistrat.bench.cost_model.fitting.fit import Band
from mpistrat.bench.cost_model.formulas.layout import Layout, Node, layout_of

__all__ = ["bands_by_ranks", "never_narrower"]


def bands_by_ranks(
    predict: Callable[[Layout], Band], ranks: Sequence[int], node: Node, first: int = 1
) -> dict[int, Band]:
    """Return the predictions for `ranks`, widened by those of all powers of two before them.

    Parameters
    ----------
    first
        The fewest ranks for which there is a prediction.
    """
    most = max(ranks, default=0)
    powers = [1 << power for power in range(most.bit_length())]
    tried = [one for one in sorted({*powers, *ranks}) if one >= first]
    widened = never_narrower({one: predict(layout_of(one, node)) for one in tried})
    return {one: widened[one] for one in ranks if one >= first}


def never_narrower(bands: Mapping[int, Band]) -> dict[int, Band]:
    """Return bands whose ends are, relative to the value, as far off as those of fewer ranks.

    What errors are known of one kind of time says nothing of fewer errors of another kind: an
    array that takes another algorithm on more ranks is not predicted better there.
    """
    found, below, above = {}, 1.0, 1.0
    for ranks, band in sorted(bands.items()):
        if band.value > 0:
            below, above = min(below, band.low / band.value), max(above, band.high / band.value)
        low, high = min(band.low, band.value * below), max(band.high, band.value * above)
        found[ranks] = Band(band.value, low, high)
    return found
