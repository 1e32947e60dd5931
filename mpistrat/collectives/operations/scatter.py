"""Cut the root's array along an axis and give every rank its piece."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_operand, check_axis
from mpistrat.collectives.arrays.results import Out, Spare, check_out, deliver_rows, new_like, room
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.all_or_none import reasons, said
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.device_gate import GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate, Transfer
from mpistrat.collectives.operations.axis_rows import from_rows, row_counts, to_rows
from mpistrat.collectives.operations.objects import bcast_object
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import BackendUnavailableError, UsageError
from mpistrat.tables.even_cut import even_lengths
from mpistrat.types import Array, ArrayLike

__all__ = ["scatter", "scatter_length", "scatter_signature"]

_HERE = np.empty(0)  # an array of the host
_MAX_NDIM = 64  # NumPy's limit; only the root knows the dimensions of its array


def scatter(gate: Gate, array: ArrayLike | None, root: int, axis: int, out: Out = None) -> Steps:
    """See `Communicator.scatter`."""
    check_root(root, gate.size, "scatter")
    if gate.rank != root:
        if array is not None:
            raise UsageError(
                f"scatter: rank {gate.names.of(gate.rank)} gave an array, but the root is"
                f" {gate.names.of(root)}; expected None"
                " on the other ranks"
            )
        check_axis(axis, _MAX_NDIM, "scatter")
        return _steps(gate, None, (root, axis), out, gpu_devices.current())
    if array is None:
        raise UsageError(f"scatter: the root (rank {root}) gave None; expected its array")
    source = as_operand(array)
    check_axis(axis, source.ndim, "scatter")
    _check_out(gate, source, axis, out)
    return _steps(gate, source, (root, axis), out)


def _check_out(gate: Gate, source: Array, axis: int, out: Out) -> None:
    """Raise unless `out` fits: at the root, which alone knows the result before the call."""
    if isinstance(out, Spare):
        return
    shape = list(source.shape)
    shape[axis] = even_lengths(shape[axis], gate.size)[gate.rank]
    check_out(out, tuple(shape), source.dtype, "scatter", source)


def scatter_signature(root: int, axis: int) -> Signature:
    """Return what must agree on all ranks."""
    return Signature("scatter", None, None, None, root, axis)


def scatter_length(gate: Gate, source: Array | None, root: int, axis: int) -> int:
    """Return the number that stands for what is scattered, as far as this rank knows."""
    form = _last_forms(gate).get((root, axis)) if source is None else _Form.of(source)
    # No digest is 0: where one rank has no guess, all ranks find that the guesses differ.
    return 0 if form is None else form.number


def _steps(
    gate: Gate,
    source: Array | None,
    where: tuple[int, int],
    out: Out,
    gpu: int | None = None,
) -> Steps:
    root, axis = where
    nbytes = 0 if source is None else source.nbytes
    mine = None if source is None else _Form.of(source)
    # Only the root knows what it has; the others guess what it had the last time.
    last = _last_forms(gate)
    form = last.get(where) if source is None else mine
    share = None
    if form is not None and not form.is_on_gpu and gate.may_guess(form.nbytes):
        share = _Share(gate, form, source, axis, out=out)
    guess = 0 if share is None or form is None else form.number
    transfer = None if share is None else share.transfer(root)
    is_right = yield from gate.carry_rows(scatter_signature(root, axis), guess, transfer, nbytes)
    if share is not None and form is not None and is_right:
        _remember(gate, where, form)
    else:
        form = yield from bcast_object(gate, mine, root)
        if form.is_on_gpu:
            found = yield from _scatter_on_gpus(gate, form, source, where, gpu)
            return deliver_rows(found, out, "scatter")
        _remember(gate, where, form)
        share = _Share(gate, form, source, axis, out=out)
        yield from share.transfer(root)()
    return deliver_rows(share.result(), out, "scatter")


def _last_forms(gate: Gate) -> dict[tuple[int, int], _Form]:
    last = _scattered.get(gate)
    if last is None:
        last = _scattered[gate] = {}
    return last


def _remember(gate: Gate, where: tuple[int, int], form: _Form) -> None:
    """Take note of what was scattered, for the next guess, of the kernels, too."""
    root, axis = where
    _last_forms(gate)[where] = form
    if gate.rank != root and axis == 0 and gate.backend.fast is not None:
        gate.backend.fast.know_scatter(root, form.like())


def _scatter_on_gpus(
    gate: Gate, form: _Form, source: Array | None, where: tuple[int, int], gpu: int | None
) -> Steps:
    """Scatter an array on the root's GPU to those that were the current ones of the others."""
    found = yield from reasons(gate.backend, gpu_devices.why_not(gpu or 0))
    if found:
        error = BackendUnavailableError(f"scatter of an array on a GPU: {said(found)}")
        raise gate.call_log.mark_known(error)
    like = on_device.new(form.dtype, gpu or 0) if source is None else source
    own = gate_for(gate, like)
    return (yield from own.run(_to_gpus(own, form, source, where, like)))


def _to_gpus(
    gate: GateOfCall, form: _Form, source: Array | None, where: tuple[int, int], like: Array
) -> Steps:
    root, axis = where
    share = _Share(gate, form, source, axis, like=like)  # here, since memory may lack
    yield from gate.cross(Signature("scatter", None, form.dtype, form.shape, root, axis))
    yield from share.transfer(root)()
    return share.result()


class _Form(NamedTuple):
    """What the root has."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_on_gpu: bool

    @classmethod
    def of(cls, array: Array) -> _Form:
        return cls(array.shape, array.dtype, not isinstance(array, np.ndarray))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def number(self) -> int:
        """A number that stands for the form."""
        return fingerprint.digest(Signature("scatter", None, self.dtype, self.shape))

    def like(self) -> Array:
        """Return an array of this form, of one element in memory."""
        return np.broadcast_to(np.empty((), self.dtype), self.shape)


# What was scattered last over each communicator, by root and axis.
_scattered: WeakKeyDictionary[Gate, dict[tuple[int, int], _Form]] = WeakKeyDictionary()


class _Share:
    """A rank's part in the scattering of an array of the given form."""

    def __init__(
        self,
        gate: GateOfCall,
        form: _Form,
        source: Array | None,
        axis: int,
        *,
        like: Array = _HERE,
        out: Out = None,
    ) -> None:
        self._gate, self._form, self._axis = gate, form, axis % len(form.shape)
        self._lengths = even_lengths(form.shape[self._axis], gate.size)
        self._counts = row_counts(self._lengths, form.shape, self._axis)
        self._rows = None if source is None else to_rows(source, self._axis)
        count = self._counts[gate.rank]
        if like is _HERE:
            sent = np.empty(0, form.dtype) if self._rows is None else self._rows
            self._piece = room(out, sent, count, self._axis)
        else:
            self._piece = new_like(like, count, form.dtype)

    def transfer(self, root: int) -> Transfer:
        """Return what moves the data."""
        backend = self._gate.backend
        return partial(backend.scatter, self._rows, self._piece, self._counts, root)

    def result(self) -> Array:
        """Return this rank's piece."""
        length = self._lengths[self._gate.rank]
        return from_rows(self._piece, length, self._form.like(), self._axis)
