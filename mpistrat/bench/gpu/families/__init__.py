"""The families of kernels: each is one file with a function that plans its rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from mpistrat.bench.gpu.comparison import Plans

__all__ = ["FAMILIES", "planned"]

FAMILIES = ("reduce", "slice sum", "pack", "unpack", "concatenate", "cast", "update", "rows")


def planned(
    names: Sequence[str], sizes: Sequence[int], buffers: Sequence[int], variables: int
) -> Plans:
    """Return the rows of families, in the order of `FAMILIES`.

    Parameters
    ----------
    names
        Of the families.
    sizes
        Bytes of a buffer, and of what is joined or converted.
    buffers
        How many are reduced.
    variables
        How many of ResNet-50's 161 tensors are packed, unpacked and updated.
    """
    from mpistrat.bench.gpu.families import casts, lists, reductions, rows, updates

    plans = chain(
        reductions.planned(sizes, buffers),
        lists.planned(sizes, variables),
        casts.planned(sizes),
        updates.planned(variables),
        rows.planned(max(sizes)),
    )
    return (plan for plan in plans if plan.family in names)
