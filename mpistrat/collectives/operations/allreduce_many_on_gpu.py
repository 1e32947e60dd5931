"""Reduce lists of arrays on a GPU: packed there in few buckets, and given back as views.

All memory is allocated before the ranks meet, so that none begins a transfer for which another
one has none. Where some rank has not enough, all of them try smaller buckets. Buckets that fit are
reduced in memory that is mapped already, where the ranks have some (mapped_slots.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.arrays.conversion import cut
from mpistrat.collectives.arrays.results import new_like
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.all_or_none import is_any, reasons, said
from mpistrat.collectives.backends.gpu.memory.filling import fill, join, split, whole
from mpistrat.collectives.checking.device_gate import DeviceGate
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tables.reduction_ops import Carried, narrow, result_dtype
from mpistrat.types import Array

__all__ = ["reduce_on_gpu"]

_LOG = get_logger(__name__)
_SIZE, _DTYPE = attrgetter("size"), attrgetter("dtype")


class _Bucket(NamedTuple):
    """Arrays that are reduced as one.

    Attributes
    ----------
    how
        How, and in which dtype.
    members
        Their indices.
    length
        Elements of all of them.
    dtype
        Of the results.
    """

    how: Carried
    members: list[int]
    length: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return self.length * self.how.dtype.itemsize


class _Memory(NamedTuple):
    """What buckets are reduced in, and what their results are views of, by bucket.

    Both may be the same array. The first is None for what is reduced in mapped memory, the second
    where results go to arrays of the caller.
    """

    work: list[Any]
    results: list[Any]


def reduce_on_gpu(
    gate: DeviceGate,
    sources: list[Array],
    op: str,
    signature: Signature,
    outs: Sequence[Array | None],
) -> Steps:
    """Return the steps of `operations.allreduce_many` for arrays on one GPU."""
    plan, memory = yield from _prepared(gate, sources, op, signature, outs)
    results: list[Any] = [None] * len(sources)
    for bucket, work, block in zip(plan, memory.work, memory.results, strict=True):
        like = [sources[i] for i in bucket.members]
        total = yield from _reduced(gate, like, bucket, work)
        sums = narrow(op, total, total.dtype, gate.size, bucket.how)
        into = [outs[i] for i in bucket.members]
        for i, found in zip(bucket.members, _given(sums, block, like, into), strict=True):
            results[i] = found
        if work is None:
            gate.backend.slots.take_back()
    return results


def _reduced(gate: DeviceGate, like: list[Array], bucket: _Bucket, work: Any) -> Steps:
    """Reduce a bucket in `work`, or in mapped memory, and return it there."""
    if work is None:
        send = total = gate.backend.slots.lend(bucket.nbytes).view(bucket.how.dtype)
        join(like, total)
    else:
        send, total = _packed(like, work), work
    if total.size:
        yield from gate.backend.allreduce(send, total, bucket.how.op)
    return total


# ---------------------------------------------------------------------------------- memory


def _prepared(
    gate: DeviceGate,
    sources: list[Array],
    op: str,
    signature: Signature,
    outs: Sequence[Array | None],
) -> Steps:
    """Cross the gate with memory for all buckets; return the buckets and their memory."""
    nbytes, wanted = signature.bucket_bytes or 1, signature.bucket_bytes
    widens, has_crossed = gate.backend.widens_halves, False
    mapped_bytes, devices = _mapped_bytes(gate, sources), gate.backend.devices
    while True:
        plan = list(_buckets(gate, sources, op, nbytes, widens))
        memory, problem = _allocated(plan, sources, outs, mapped_bytes)
        if has_crossed:
            lacks = yield from is_any(gate.host_backend, problem is not None)
        else:
            how = widens + 2 * (mapped_bytes > 0)
            lacks = yield from gate.cross(signature, how, lacks_memory=problem is not None)
            has_crossed = True
            common = int(np.bitwise_and.reduce(gate.extras))
            # What was known of mapped memory is that of the GPUs of the call before, on all ranks.
            are_same = gate.backend.devices == devices
            if (gate.extras != common).any() or (common >> 1 and not are_same):
                # Some do not know yet what carries the arrays, or have them in one piece.
                widens, memory = bool(common & 1), None
                mapped_bytes *= (common >> 1) * are_same
                continue
        if not lacks:
            _say_smaller(nbytes, wanted)
            return plan, memory
        memory = None  # before others are tried
        least = max(_longest(bucket, sources) for bucket in plan)
        most = max(bucket.nbytes for bucket in plan)
        if most <= least:
            yield from _give_up(gate, problem, least, wanted)
        nbytes = max(min(nbytes, most) // 2, least, 1)


def _say_smaller(nbytes: int, wanted: int | None) -> None:
    if nbytes != wanted:
        text = f"allreduce_many: buckets of {nbytes} bytes, for lack of memory on GPUs"
        warn_once(_LOG, "smaller buckets on GPUs", f"{text}; wanted {wanted}")


def _longest(bucket: _Bucket, sources: list[Array]) -> int:
    """Return the bytes of the longest array of a bucket, as it travels."""
    return max(sources[i].size for i in bucket.members) * bucket.how.dtype.itemsize


def _give_up(gate: DeviceGate, problem: str | None, least: int, wanted: int | None) -> Steps:
    found = yield from reasons(gate.host_backend, problem)
    raise BackendUnavailableError(
        f"allreduce_many: {said(found)}; buckets were tried from {wanted} bytes"
        f" (bucket_bytes=, MPISTRAT_FUSION_BYTES) down to {least}, the longest array"
    )


def _mapped_bytes(gate: DeviceGate, sources: list[Array]) -> int:
    """Return up to how many bytes this rank would reduce in mapped memory; 0 if it needs none.

    What lies in one piece need not be packed.
    """
    if not gate.backend.slots.nbytes:
        return 0
    groups = [[sources[i] for i in members] for members in _by_dtype(sources).values()]
    is_in_one_piece = all(whole(group) is not None for group in groups)
    return 0 if is_in_one_piece else gate.backend.slots.nbytes


def _allocated(
    plan: list[_Bucket], sources: list[Array], outs: Sequence[Array | None], mapped_bytes: int
) -> tuple[_Memory | None, str | None]:
    """Return memory for all buckets, or why there is not enough. **Local.**"""
    try:
        return _memory(plan, sources, outs, mapped_bytes), None
    except Exception as error:
        problem = gpu_devices.memory_problem(error)
        if problem is None:
            raise
        return None, problem


def _memory(
    plan: list[_Bucket], sources: list[Array], outs: Sequence[Array | None], mapped_bytes: int
) -> _Memory:
    """Return memory for all buckets: that of results, if it has the dtype, or one for all.

    None for those that mapped memory has room for.
    """
    results = [_block(bucket, sources, outs) for bucket in plan]
    is_mapped = [0 < bucket.nbytes <= mapped_bytes for bucket in plan]
    work = [
        block if block is not None and block.dtype == bucket.how.dtype else None
        for bucket, block in zip(plan, results, strict=True)
    ]
    missing = [
        bucket.nbytes
        for bucket, one, has_slot in zip(plan, work, is_mapped, strict=True)
        if one is None and not has_slot
    ]
    shared: Any = new_like(sources[0], max(missing), np.dtype(np.uint8)) if missing else None
    for index, bucket in enumerate(plan):
        if is_mapped[index]:
            work[index] = None
        elif work[index] is None:
            work[index] = shared[: bucket.nbytes].view(bucket.how.dtype)
    return _Memory(work, results)


def _block(bucket: _Bucket, sources: list[Array], outs: Sequence[Array | None]) -> Any:
    """Return flat memory for a bucket's results; None if `outs` are apart from one another."""
    if outs[bucket.members[0]] is not None:
        return whole([outs[i] for i in bucket.members])
    return new_like(sources[bucket.members[0]], bucket.length, bucket.dtype)


def _buckets(
    gate: DeviceGate, sources: list[Array], op: str, nbytes: int, widens: bool
) -> Iterator[_Bucket]:
    """Yield arrays of one dtype that are reduced as one, of about `nbytes` at most."""
    sizes = list(map(_SIZE, sources))
    for dtype, members in _by_dtype(sources).items():
        how, result = _how(gate, op, dtype, widens), result_dtype(op, dtype)
        for bucket, length in _cut(members, sizes, nbytes // how.dtype.itemsize):
            yield _Bucket(how, bucket, length, result)


def _by_dtype(sources: list[Array]) -> dict[np.dtype[Any], list[int]]:
    """Return the indices of the arrays of each dtype, in the order of their first ones."""
    dtypes = list(map(_DTYPE, sources))
    if len(set(dtypes)) == 1:  # as most lists are, and long ones are many
        return {dtypes[0]: list(range(len(dtypes)))}
    groups: dict[np.dtype[Any], list[int]] = {}
    for index, dtype in enumerate(dtypes):
        groups.setdefault(dtype, []).append(index)
    return groups


def _cut(members: list[int], sizes: list[int], most: int) -> Iterator[tuple[list[int], int]]:
    """Yield members in order, of `most` elements at most or one alone, with their elements."""
    total = sum([sizes[index] for index in members])
    if total <= most:
        yield members, total
        return
    bucket: list[int] = []
    held = 0
    for index in members:
        if bucket and held + sizes[index] > most:
            yield bucket, held
            bucket, held = [], 0
        bucket.append(index)
        held += sizes[index]
    yield bucket, held


def _how(gate: DeviceGate, op: str, dtype: np.dtype[Any], widens: bool) -> Carried:
    """Return how arrays of a dtype are reduced: half types as float32, if they travel so."""
    how = gate.reductions.carried(op, dtype)
    is_half = how.dtype.name in ("float16", "bfloat16")
    if widens and is_half and op in ("sum", "prod", "mean"):
        return how._replace(dtype=np.dtype(np.float32))
    return how


# --------------------------------------------------------------------------------- movement


def _packed(parts: list[Array], total: Any) -> Any:
    """Return arrays as one: themselves, if they are parts of one, or packed into `total`."""
    found = whole(parts) if parts[0].dtype == total.dtype else None
    if found is not None and (found.data.ptr == total.data.ptr or _are_apart(found, total)):
        return found
    join(parts, total)
    return total


def _are_apart(one: Any, other: Any) -> bool:
    begins = int(one.data.ptr), int(other.data.ptr)
    ends = begins[0] + int(one.nbytes), begins[1] + int(other.nbytes)
    return ends[0] <= begins[1] or ends[1] <= begins[0]


def _given(total: Any, block: Any, like: list[Array], into: list[Any]) -> list[Array]:
    """Return a bucket's results: in the arrays `into`, or views of the block."""
    if block is None:
        split(total, into)
    elif block is not total:
        fill([block], [total])
    return cut(block, like) if into[0] is None else into
