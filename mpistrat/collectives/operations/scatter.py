"""Cut the root's array along an axis and give every rank its piece."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array, check_axis
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate, Transfer
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, to_rows
from mpistrat.collectives.operations.objects import bcast_object
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import UsageError
from mpistrat.tables.even_cut import even_lengths
from mpistrat.types import Array, ArrayLike

__all__ = ["scatter"]

_MAX_NDIM = 64  # NumPy's limit; only the root knows the dimensions of its array


def scatter(gate: Gate, array: ArrayLike | None, root: int, axis: int) -> Steps:
    """See `Communicator.scatter`."""
    check_root(root, gate.size, "scatter")
    if gate.rank != root:
        if array is not None:
            raise UsageError(
                f"scatter: rank {gate.rank} gave an array, but the root is {root}; expected None"
                " on the other ranks"
            )
        check_axis(axis, _MAX_NDIM, "scatter")
        return _steps(gate, None, root, axis)
    if array is None:
        raise UsageError(f"scatter: the root (rank {root}) gave None; expected its array")
    source = as_array(array)
    check_axis(axis, source.ndim, "scatter")
    return _steps(gate, source, root, axis)


def _steps(gate: Gate, source: Array | None, root: int, axis: int) -> Steps:
    signature = Signature("scatter", None, None, None, root, axis)
    nbytes = 0 if source is None else source.nbytes
    # Only the root knows what it has; the others guess what it had the last time.
    last = _scattered.get(gate)
    if last is None:
        last = _scattered[gate] = {}
    form = last.get((root, axis)) if source is None else _Form(source.shape, source.dtype)
    share = None
    if form is not None and gate.may_guess(form.nbytes):
        share = _Share(gate, form, source, axis)
    # No digest is 0: where one rank has no guess, all ranks find that the guesses differ.
    guess = 0 if share is None else share.number
    transfer = None if share is None else share.transfer(root)
    is_right = yield from gate.carry_rows(signature, guess, transfer, nbytes)
    if share is None or not is_right:
        last[root, axis] = form = yield from bcast_object(gate, form, root)
        share = _Share(gate, form, source, axis)
        yield from share.transfer(root)()
    return share.result()


class _Form(NamedTuple):
    """What the root has."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


# What was scattered last over each communicator, by root and axis.
_scattered: WeakKeyDictionary[Gate, dict[tuple[int, int], _Form]] = WeakKeyDictionary()


class _Share:
    """A rank's part in the scattering of an array of the given form."""

    def __init__(self, gate: Gate, form: _Form, source: Array | None, axis: int) -> None:
        self._gate, self._form, self._axis = gate, form, axis % len(form.shape)
        self._lengths = even_lengths(form.shape[self._axis], gate.size)
        self._counts = row_counts(self._lengths, form.shape, self._axis)
        self._rows = None if source is None else to_rows(source, self._axis)
        self._piece = np.empty(self._counts[gate.rank], form.dtype)

    @property
    def number(self) -> int:
        """A number that stands for the form."""
        return fingerprint.digest(Signature("scatter", None, self._form.dtype, self._form.shape))

    def transfer(self, root: int) -> Transfer:
        """Return what moves the data."""
        backend = self._gate.backend
        return partial(backend.scatter, self._rows, self._piece, self._counts, root)

    def result(self) -> Array:
        """Return this rank's piece."""
        like = np.broadcast_to(np.empty((), self._form.dtype), self._form.shape)
        return from_rows(self._piece, self._lengths[self._gate.rank], like, self._axis)
