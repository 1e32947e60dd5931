"""Reduce lists of arrays: in place, one transfer for each dtype, or packed into flat buckets.

Packed by backends whose transfers carry no headers, and on GPUs (`allreduce_many_on_gpu`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.arrays.buffer_pool import BufferPool
from mpistrat.collectives.arrays.conversion import (
    are_alike,
    as_operands,
    can_take_results,
    cut,
    flat,
)
from mpistrat.collectives.arrays.one_rank import reduced_alone
from mpistrat.collectives.arrays.results import check_out, deliver, landing
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.device_gate import DeviceGate, GateOfCall, gate_for
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.allreduce_many_on_gpu import reduce_on_gpu
from mpistrat.collectives.operations.exact_reduction import Nans
from mpistrat.errors import UsageError
from mpistrat.tables.reduction_ops import Carried, carried, combine, narrow, result_dtype, widened
from mpistrat.types import Array, ArrayLike

__all__ = ["allreduce_many", "buckets", "list_signature"]

Outs: TypeAlias = Sequence[Array | None]

_DTYPE, _SHAPE = attrgetter("dtype"), attrgetter("shape")  # mapped, since lists may be long


def allreduce_many(
    gate: Gate,
    arrays: Sequence[ArrayLike],
    op: str,
    bucket_bytes: int | None,
    out: Sequence[Array] | None,
    transfer: int = 0,
) -> Steps:
    """See `Communicator.allreduce_many`.

    The steps begin with that `transfer`; native code has made those before it, into `out`.
    """
    sources = as_operands(arrays)
    own = gate_for(gate, sources[0]) if sources else gate
    for dtype in dict.fromkeys(_dtypes(sources)):  # in order, each once
        own.reductions.require(op, dtype)
    outs: Outs = [None] * len(sources) if out is None else list(out)
    if out is not None:
        _check_outs(sources, outs, op)
    nbytes = gate.bucket_bytes if bucket_bytes is None else bucket_bytes
    if not isinstance(nbytes, (int, np.integer)) or nbytes < 1:
        raise UsageError(
            f"allreduce_many: bucket_bytes={bucket_bytes!r}; expected a whole number above 0, or"
            " None for MPISTRAT_FUSION_BYTES"
        )
    return own.run(_steps(own, sources, op, nbytes, outs, transfer))


def list_signature(sources: list[Array], op: str, nbytes: int) -> Signature:
    """Return what the ranks compare of a call."""
    shapes = tuple(map(_SHAPE, sources))
    return Signature("allreduce_many", op, _dtypes(sources), shapes, bucket_bytes=nbytes)


def _dtypes(sources: list[Array]) -> tuple[np.dtype[Any], ...]:
    if are_alike(sources):
        return (sources[0].dtype,) * len(sources)
    return tuple(map(_DTYPE, sources))


def _check_outs(sources: list[Array], outs: Outs, op: str) -> None:
    if len(outs) != len(sources):
        raise UsageError(f"allreduce_many: {len(sources)} arrays, {len(outs)} in out=")
    if _fit_on_host(sources, outs, op):
        return
    given = [id(one) for one in outs if one is not None]
    if len(set(given)) < len(given):
        twice = next(i for i, one in enumerate(outs) if given.count(id(one)) > 1)
        raise UsageError(
            f"allreduce_many: out[{twice}] is in out= more than once; expected an array for each"
            " result"
        )
    if _fit_on_gpu(sources, outs, op):
        return
    for source, out in zip(sources, outs, strict=True):
        check_out(out, source.shape, result_dtype(op, source.dtype), "allreduce_many", source)


def _fit_on_host(sources: list[Array], outs: Outs, op: str) -> bool:
    fits = can_take_results(list(outs), sources)
    return fits and result_dtype(op, sources[0].dtype) == sources[0].dtype


def _fit_on_gpu(sources: list[Array], outs: Outs, op: str) -> bool:
    """Tell whether all are plain arrays on one GPU, and alike: in a tenth of the time."""
    device = on_device.on_one_gpu(outs)
    # The sources are in one place, of which the first one tells.
    if device is None or device != on_device.on_one_gpu(sources[:1]):
        return False
    dtypes = _dtypes(sources)
    wanted = {dtype: result_dtype(op, dtype) for dtype in dict.fromkeys(dtypes)}
    are_alike = list(map(_SHAPE, outs)) == list(map(_SHAPE, sources))
    return are_alike and list(map(_DTYPE, outs)) == [wanted[dtype] for dtype in dtypes]


def _steps(
    gate: GateOfCall, sources: list[Array], op: str, nbytes: int, outs: Outs, transfer: int
) -> Steps:
    signature = list_signature(sources, op, nbytes)
    if isinstance(gate, DeviceGate):
        return (yield from reduce_on_gpu(gate, sources, op, signature, outs))
    if gate.size == 1:
        yield from gate.cross(signature)
        return [reduced_alone(source, op, out) for source, out in zip(sources, outs, strict=True)]
    if gate.carries_headers:
        return (yield from _by_pieces(gate, sources, op, signature, outs, transfer))
    how = [carried(op, source.dtype, is_exact=False) for source in sources]  # as it is packed
    # Equal on all ranks: it follows from what the signature compares.
    plan = list(buckets(sources, op, nbytes))
    packed = [_pack(sources, members, op) for members in plan]
    if len(packed) == 1 and packed[0].nbytes <= gate.inline_bytes:
        yield from gate.cross(signature, payload=packed[0])
        totals = [combine(how[0].op, gate.payloads(packed[0]))]
    else:
        totals = packed
        rules = [how[members[0]] for members in plan]
        nans = [Nans(gate, *pair) for pair in zip(rules, packed, strict=True)]
        yield from gate.cross(signature, extra=any(one.flag for one in nans))
        for rule, total, one in zip(rules, totals, nans, strict=True):
            if total.size:
                yield from gate.backend.allreduce(total, total, rule.op)
            where = one.mask(gate)
            if where is not None:
                yield from gate.backend.allreduce(where, where, "or")
                total[where] = np.nan
    results = _unpack(sources, plan, totals, op, gate.size)
    return [deliver(*pair) for pair in zip(results, outs, strict=True)]


def _by_pieces(
    gate: Gate, sources: list[Array], op: str, signature: Signature, outs: Outs, first: int
) -> Steps:
    """Reduce without packing: the backend reads the arrays where they lie, dtype by dtype.

    Those before transfer number `first` are over, with their results in `outs`.
    """
    groups = _groups(gate, sources, op)
    mine = [[sources[i] for i in members] for members in groups.values()]
    # Converted before the first transfer, whose results may overlap sources of another group.
    sends = [_sends(own, how.dtype) for own, (how, _) in zip(mine, groups, strict=True)]
    results: list[Any] = list(outs) if first else [np.empty(0)] * len(sources)
    if not groups:
        # An empty list is a call like any other, which the peers compare.
        yield from gate.cross(signature)
    for number, (key, members) in islice(enumerate(groups.items()), first, None):
        places: list[Any] = [outs[i] for i in members]
        is_direct = key[0] == Carried(op, key[1], False) and can_take_results(
            places, sends[number]
        )
        pieces = places if is_direct else _landings(gate, sends[number], places)
        transfer = partial(gate.backend.allreduce_pieces, sends[number], pieces, key[0].op)
        if number == first:  # it carries the header of the call
            yield from gate.carry(signature, transfer, is_all=number == len(groups) - 1)
        else:
            yield from transfer()
        totals = pieces if is_direct else _totals(gate, op, key, pieces, mine[number])
        for i, total in zip(members, totals, strict=True):
            results[i] = total if is_direct else deliver(total, outs[i])
    return results


_Key: TypeAlias = tuple[Carried, np.dtype[Any]]


def _groups(gate: Gate, sources: list[Array], op: str) -> dict[_Key, Sequence[int]]:
    """Return what is reduced as one: indices by how that is done, and by the results' dtype."""
    if are_alike(sources):
        dtype = sources[0].dtype
        return {(gate.reductions.carried(op, dtype), result_dtype(op, dtype)): range(len(sources))}
    groups: dict[_Key, list[int]] = {}
    for index, source in enumerate(sources):
        key = gate.reductions.carried(op, source.dtype), result_dtype(op, source.dtype)
        groups.setdefault(key, []).append(index)
    return dict(groups)


def _sends(sources: list[Array], dtype: np.dtype[Any]) -> list[Array]:
    """Return `sources` in C order, as `dtype`: themselves, views or copies."""
    if are_alike(sources) and sources[0].dtype == dtype:
        return sources
    return [flat(_as_dtype(source, dtype)) for source in sources]


def _totals(gate: Gate, op: str, key: _Key, pieces: list[Array], like: list[Array]) -> list[Array]:
    """Return the results, shaped as the arrays `like`; in one piece they are finished as one."""
    how, dtype = key
    if len(pieces) == 1:
        return cut(narrow(op, pieces[0], dtype, gate.size, how), like)
    shaped = [piece.reshape(one.shape) for piece, one in zip(pieces, like, strict=True)]
    return [narrow(op, piece, dtype, gate.size, how) for piece in shaped]


def _as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    return array if array.dtype == dtype else array.astype(dtype)


def _landings(gate: Gate, sends: list[Array], outs: Outs) -> list[Array]:
    """Return where results go: into `outs`, or one after the other into new memory."""
    if outs and outs[0] is not None:
        return [landing(out, send) for out, send in zip(outs, sends, strict=True)]
    return [_pool(gate).lend(sum(send.nbytes for send in sends)).view(sends[0].dtype)]


_pools: WeakKeyDictionary[Gate, BufferPool] = WeakKeyDictionary()  # of each communicator


def _pool(gate: Gate) -> BufferPool:
    found = _pools.get(gate)
    if found is None:
        found = _pools[gate] = BufferPool()
    return found


def buckets(sources: Sequence[Array], op: str, nbytes: int) -> Iterator[list[int]]:
    """Yield lists of indices whose arrays go in one message, in order, by dtype of the sum."""
    open_buckets: dict[np.dtype, tuple[list[int], int]] = {}
    for index, source in enumerate(sources):
        dtype = widened(op, source.dtype)
        members, held = open_buckets.get(dtype, ([], 0))
        more = source.size * dtype.itemsize
        if members and held + more > nbytes:
            yield members
            members, held = [], 0
        open_buckets[dtype] = ([*members, index], held + more)
    yield from (members for members, _ in open_buckets.values())


def _pack(sources: list[Array], members: list[int], op: str) -> Array:
    dtype = widened(op, sources[members[0]].dtype)
    packed = np.empty(sum(sources[i].size for i in members), dtype)
    start = 0
    for i in members:
        packed[start : start + sources[i].size] = flat(sources[i])
        start += sources[i].size
    return packed


def _unpack(
    sources: list[Array], plan: list[list[int]], totals: list[Array], op: str, size: int
) -> list[Array]:
    results: list[Array] = [np.empty(0)] * len(sources)
    for members, total in zip(plan, totals, strict=True):
        start = 0
        for i in members:
            source = sources[i]
            piece = total[start : start + source.size].reshape(source.shape)
            dtype = result_dtype(op, source.dtype)
            results[i] = np.asarray(narrow(op, piece, dtype, size)).copy()
            start += source.size
    return results
