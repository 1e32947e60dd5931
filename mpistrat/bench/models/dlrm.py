"""The gradients of DLRM as MLPerf trains it: two dense networks, and rows of 26 tables."""

from __future__ import annotations

from itertools import pairwise

from mpistrat.bench.models.gradient_set import Shape, Table

__all__ = ["gradient_shapes", "tables"]

_WIDTH = 128
_BATCH = 2048
_BOTTOM = (13, 512, 256, _WIDTH)
# The products of each pair of 27 vectors (of 26 tables, and of the bottom network), and the last
# of these vectors.
_TOP = (27 * 26 // 2 + _WIDTH, 1024, 1024, 512, 256, 1)
_ROWS = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10),
    *(2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36),
)


def gradient_shapes() -> list[Shape]:
    """Return the shapes of the bottom and the top network: 16 tensors, 2 368 897 elements.

    References
    ----------
    Naumov et al. 2019, Deep Learning Recommendation Model; arXiv:1906.00091. Sizes: bench/
    run_and_time.sh of https://github.com/facebookresearch/dlrm (MLPerf, Criteo's terabyte).
    """
    return [
        shape
        for widths in (_BOTTOM, _TOP)
        for a, b in pairwise(widths)
        for shape in ((a, b), (b,))
    ]


def tables() -> list[Table]:
    """Return the 26 tables (187 767 399 rows), of which each example of a batch reads one row.

    References
    ----------
    As of `gradient_shapes`: 128 columns, a batch of 2048, at most 40 M rows. The numbers of rows
    are those of Criteo's terabyte with that limit, as in --vocab_sizes_embed of MLPerf's results.
    """
    return [Table(rows, _WIDTH, _BATCH) for rows in _ROWS]
