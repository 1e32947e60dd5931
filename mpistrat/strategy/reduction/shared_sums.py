"""Keep sums that only the library reads once a node, in memory that its ranks share.

Such a result is written once and read in place, so that each rank writes its share of it, where
private results are written by every rank. Measured on 2 ranks with the 161 gradients of ResNet-50
(102 MB) as one call, medians of 22 in turn, against private results (22.4 ms): 0.72 into shared
memory, 0.84 into registered; against a flat array's private result 0.65 and 0.83. By size, 16
arrays: 1.0 at 256 KiB, 0.93 at 1 MiB, 0.73 to 0.81 from 4 MiB on.

What a user gets is private nevertheless: who writes to it must not change what others read, nor a
forked child what its parent does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives import Communicator
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["SharedSums"]

_LEAST_BYTES = 1 << 20
_MOST_FORMS = 4

_Form: TypeAlias = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


class SharedSums:
    """Sums over the ranks of lists of arrays, each valid until the next one is asked for.

    The memory is made once a list has the shapes and dtypes of one of the last few, which the
    ranks then know to be alike; where there is none to share, results are private. Which lists
    there were must be equal on all ranks, so this belongs to who makes the calls together (a
    strategy), not to what one rank may copy or load (an optimizer).

    Parameters
    ----------
    communicator
        Over the ranks.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        # The latest last; None of what was there once, and none of what stays private.
        self._outs: dict[_Form, list[Array] | None] = {}

    def sum(self, arrays: Sequence[Array], **options: Any) -> list[Array]:
        """Return the sums, which are not to be written to. **Collective.**

        Parameters
        ----------
        arrays
            Equal in number, shapes and dtypes on all ranks.
        options
            Of `Communicator.allreduce_many`.
        """
        try:
            outs = self._outs_of(tuple((array.shape, array.dtype) for array in arrays))
            return self._communicator.allreduce_many(arrays, out=outs or None, **options)
        except BaseException:  # the ranks' lists may have been different ones
            self._outs.clear()
            raise

    def _outs_of(self, form: _Form) -> list[Array] | None:
        is_first = form not in self._outs
        outs = self._outs.pop(form, None)
        if not is_first and outs is None:
            outs = _new_outs(self._communicator, form)
        self._outs[form] = outs
        while len(self._outs) > _MOST_FORMS:
            del self._outs[next(iter(self._outs))]
        return outs


def _new_outs(communicator: Communicator, form: _Form) -> list[Array]:
    """Return arrays in shared memory; none where there is none, or too little to gain."""
    if sum(math.prod(shape) * dtype.itemsize for shape, dtype in form) < _LEAST_BYTES:
        return []
    outs: dict[int, Array] = {}
    for dtype in dict.fromkeys(dtype for _, dtype in form):
        members = [index for index, (_, other) in enumerate(form) if other == dtype]
        sizes = [math.prod(form[index][0]) for index in members]
        try:
            memory = communicator.empty(sum(sizes), dtype, shared=True)
        except BackendUnavailableError:  # on all ranks; private results will do
            return []
        parts = np.split(memory, list(itertools.accumulate(sizes))[:-1])
        for index, part in zip(members, parts, strict=True):
            outs[index] = part.reshape(form[index][0])
    return [outs[index] for index in range(len(form))]
