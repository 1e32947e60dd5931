"""Sums that only the library reads: once a node, in memory that its ranks share.

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
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives import Communicator
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["SharedSums"]

_LEAST_BYTES = 1 << 20

_Form: TypeAlias = list[tuple[tuple[int, ...], np.dtype[Any]]]


class SharedSums:
    """Sums over the ranks of lists of arrays, each valid until the next one is asked for.

    The memory is made once two lists after each other had the same shapes and dtypes, which the
    ranks then know to be alike; where there is none to share, results are private.
    """

    def __init__(self) -> None:
        self._form: _Form | None = None
        self._communicator: weakref.ref[Communicator] | None = None
        self._outs: list[Array] | None = None
        self._has_tried = False

    def sum(
        self, communicator: Communicator, arrays: Sequence[Array], **options: Any
    ) -> list[Array]:
        """Return the sums, which are not to be written to. **Collective.**

        Parameters
        ----------
        communicator
            Over the ranks.
        arrays
            Equal in number, shapes and dtypes on all ranks.
        options
            Of `Communicator.allreduce_many`.
        """
        form: _Form = [(array.shape, array.dtype) for array in arrays]
        if not self._is_like_last(communicator, form):
            sums = communicator.allreduce_many(arrays, **options)
            self._remember(communicator, form)
            return sums
        if not self._has_tried:
            self._has_tried = True
            self._outs = _new_outs(communicator, form)
        return communicator.allreduce_many(arrays, out=self._outs, **options)

    def _is_like_last(self, communicator: Communicator, form: _Form) -> bool:
        is_same = self._communicator is not None and self._communicator() is communicator
        return is_same and form == self._form

    def _remember(self, communicator: Communicator, form: _Form) -> None:
        self._form, self._communicator = form, weakref.ref(communicator)
        self._outs, self._has_tried = None, False


def _new_outs(communicator: Communicator, form: _Form) -> list[Array] | None:
    """Return arrays in shared memory; None where there is none, or too little to gain."""
    if sum(math.prod(shape) * dtype.itemsize for shape, dtype in form) < _LEAST_BYTES:
        return None
    outs: dict[int, Array] = {}
    for dtype in dict.fromkeys(dtype for _, dtype in form):
        members = [index for index, (_, other) in enumerate(form) if other == dtype]
        sizes = [math.prod(form[index][0]) for index in members]
        try:
            memory = communicator.empty(sum(sizes), dtype, shared=True)
        except BackendUnavailableError:  # on all ranks; private results will do
            return None
        parts = np.split(memory, list(itertools.accumulate(sizes))[:-1])
        for index, part in zip(members, parts, strict=True):
            outs[index] = part.reshape(form[index][0])
    return [outs[index] for index in range(len(form))]
