"""Send Python objects, pickled, within the job's own communicator only.

Each rank that brings an object sends a frame: the length of the pickled object, and the object if
it fits. One that does not fit follows in a second call, whose length all ranks know by then.

A frame is an array of uint8 and a whole object one of int8: by the dtype the ranks see whether all
send the same of the two (`object_signature`).
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.pickling import pack
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.types import Array

__all__ = [
    "FRAME_BYTES",
    "allgather_bytes",
    "allgather_ragged",
    "bcast_bytes",
    "bcast_object",
    "fail",
    "frame_of",
    "gathered_frame_bytes",
    "is_framed",
    "length_in",
    "object_signature",
    "unpack_frame",
    "whole",
]

_LENGTH = struct.Struct("<q")
FRAME_BYTES = 512  # of a broadcast, and of a gather between few ranks
_MANY_RANKS = 33
_SHORT_FRAME_BYTES = 64  # of a gather between many, each of which gets them all


def gathered_frame_bytes(size: int) -> int:
    """Return the size of each frame that `size` ranks gather."""
    return FRAME_BYTES if size < _MANY_RANKS else _SHORT_FRAME_BYTES


def frame_of(data: bytes, nbytes: int) -> Array:
    """Return the frame of a pickled object, or of ``b""``: uint8, shape (nbytes,), read-only."""
    head = _LENGTH.pack(len(data)) + (data if is_framed(len(data), nbytes) else b"")
    return np.frombuffer(head.ljust(nbytes, b"\0"), np.uint8)


def whole(data: bytes, length: int) -> Array:
    """Return a pickled object, padded with zeros: int8, shape (length,)."""
    if len(data) == length:
        return np.frombuffer(data, np.int8)
    filled = np.zeros(length, np.int8)
    filled[: len(data)] = np.frombuffer(data, np.int8)
    return filled


def length_in(frame: Array) -> int:
    """Return the length, in bytes, of the pickled object whose frame this is."""
    return int(_LENGTH.unpack_from(frame.data)[0])


def is_framed(length: int, nbytes: int) -> bool:
    """Tell whether a pickled object of that length fits into a frame of `nbytes`."""
    return length <= nbytes - _LENGTH.size


def unpack_frame(frame: Array) -> Any:
    """Return the object that is in a frame."""
    return pickle.loads(frame[_LENGTH.size : _LENGTH.size + length_in(frame)].data)


# ------------------------------------------------------------------------------------------- calls


def object_signature(op: str, array: Array, root: int | None = None) -> Signature:
    """Return what must agree on all ranks that send frames, or whole objects."""
    return Signature(op, shape=None if array.dtype == np.uint8 else array.shape, root=root)


def bcast_bytes(gate: Gate, array: Array, root: int, out: Array | None = None) -> Steps:
    """Copy the root's frame, or its whole object, to every rank."""
    check_root(root, gate.size, "bcast_object")
    copy = np.empty_like(array) if out is None else out
    if gate.rank == root:
        copy[:] = array
    signature = object_signature("bcast_object", array, root)
    nbytes = array.nbytes if gate.rank == root else 0
    return _carried(gate, signature, partial(gate.backend.bcast, copy, root), copy, nbytes)


def allgather_bytes(gate: Gate, array: Array, out: Array | None = None) -> Steps:
    """Concatenate all ranks' frames, or whole objects of one length, on every rank."""
    counts = [array.size] * gate.size
    everything = np.empty(sum(counts), array.dtype) if out is None else out
    transfer = partial(gate.backend.allgather, array, everything, counts)
    signature = object_signature("allgather_object", array)
    return _carried(gate, signature, transfer, everything, array.nbytes)


def allgather_ragged(gate: Gate, array: Array, counts: Sequence[int]) -> Steps:
    """Concatenate all ranks' whole objects, whose lengths `counts` has by rank, on every rank."""
    everything = np.empty(sum(counts), array.dtype)
    transfer = partial(gate.backend.allgather, array, everything, list(counts))
    signature = object_signature("allgather_object", everything)
    return _carried(gate, signature, transfer, everything, array.nbytes)


def _carried(gate: Gate, signature: Signature, transfer: Any, result: Array, nbytes: int) -> Steps:
    yield from gate.carry(signature, transfer, nbytes=nbytes)
    return result


def bcast_object(gate: Gate, value: Any, root: int) -> Steps:
    """Return the root's `value`: for other operations, which begin with it."""
    data = pack(value) if gate.rank == root else b""
    frame = yield from bcast_bytes(gate, frame_of(data, FRAME_BYTES), root)
    length = length_in(frame)
    if is_framed(length, frame.nbytes):
        return unpack_frame(frame)
    return pickle.loads((yield from bcast_bytes(gate, whole(data, length), root)))


def fail(gate: Gate, error: Exception) -> Steps:
    """Raise `error`, as an operation does that refuses its arguments."""
    raise error
