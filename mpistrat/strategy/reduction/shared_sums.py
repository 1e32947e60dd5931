"""Sum arrays over the ranks into memory that the ranks of a node share.

Each rank writes its share of such a result, and reads all of it in place; private results are
written whole by every rank. Measured on 2 ranks with the 161 gradients of ResNet-50
(102 MB) as one call, medians of 22 in turn, against private results (22.4 ms): 0.72 into shared
memory, 0.84 into registered; against a flat array's private result 0.65 and 0.83. By size, 16
arrays: 1.0 at 256 KiB, 0.93 at 1 MiB, 0.73 to 0.81 from 4 MiB on.

Only results that stay within the library are shared. An array that a user gets is private: writing
to it must not change what other ranks read, nor, in a forked child, what its parent reads.
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

    Memory is allocated when a list has the shapes and dtypes of one of the last few lists: the
    ranks have agreed on them by then. Where the backend shares no memory, results are private.
    All ranks must have summed the same lists before. So an instance belongs to a strategy, which
    all ranks call together, not to an optimizer, which one rank may copy or load.

    Parameters
    ----------
    communicator
        Over the ranks.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        # By shapes and dtypes, the latest last. None: seen once; []: results stay private.
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
        if arrays and not isinstance(arrays[0], np.ndarray):  # on a GPU: the memory is the host's
            return self._communicator.allreduce_many(arrays, **options)
        try:
            outs = self._outs_of(tuple((array.shape, array.dtype) for array in arrays))
            return self._communicator.allreduce_many(arrays, out=outs or None, **options)
        except BaseException:  # the ranks' lists may have been different ones
            self._outs.clear()
            raise

    def _outs_of(self, form: _Form) -> list[Array] | None:
        is_first = form not in self._outs
        # Taken out and put back as the last: the form that was not used for longest is dropped.
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
