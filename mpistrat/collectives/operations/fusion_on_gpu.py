"""Reduce lists of arrays on a GPU: packed there in few buckets, and given back as views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import cut, deliver, flat, new_like
from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.backends.gpu.kernels.movement import pack
from mpistrat.collectives.checking.device_gate import GateOfCall
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.tables.reduction_ops import Carried, narrow, result_dtype
from mpistrat.types import Array

__all__ = ["reduce_on_gpu"]


def reduce_on_gpu(
    gate: GateOfCall,
    sources: list[Array],
    op: str,
    signature: Signature,
    outs: Sequence[Array | None],
) -> Steps:
    """Return the steps of `fusion.allreduce_many` for arrays on one GPU."""
    yield from gate.cross(signature)
    results: list[Any] = [None] * len(sources)
    for how, members in _buckets(gate, sources, op, signature.bucket_bytes or 1):
        like = [sources[i] for i in members]
        sends = [flat(one.astype(how.dtype, copy=False)) for one in like]
        total = new_like(like[0], sum(one.size for one in sends), how.dtype)
        pack(sends, total.data.ptr)  # type: ignore[attr-defined]  # CuPy's
        if total.size:
            yield from gate.backend.allreduce(total, total, how.op)
        total = narrow(op, total, result_dtype(op, like[0].dtype), gate.size, how)
        for i, part in zip(members, cut(total, like), strict=True):
            results[i] = deliver(part, outs[i])
    return results


def _buckets(
    gate: GateOfCall, sources: list[Array], op: str, nbytes: int
) -> Iterator[tuple[Carried, list[int]]]:
    """Yield indices whose arrays are reduced as one, of one dtype and about `nbytes` at most."""
    groups: dict[np.dtype[Any], list[int]] = {}
    for index, source in enumerate(sources):
        groups.setdefault(source.dtype, []).append(index)
    for dtype, members in groups.items():
        how = gate.reductions.carried(op, dtype)
        bucket: list[int] = []
        held = 0
        for index in members:
            more = sources[index].size * how.dtype.itemsize
            if bucket and held + more > nbytes:
                yield how, bucket
                bucket, held = [], 0
            bucket.append(index)
            held += more
        yield how, bucket
