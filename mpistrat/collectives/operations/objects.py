"""Send Python objects, pickled, within the job's own communicator only.

Each rank that brings an object sends a frame first: the length of the pickled object, and the
object if it fits. One that does not fit follows in the same call, its length being known to all
ranks by then. Where the backend does not carry headers, these have the lengths, without frames.
"""

from __future__ import annotations

import pickle
import struct
from functools import partial
from typing import Any, cast

import numpy as np

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.collectives.pickling import pack
from mpistrat.types import Array

__all__ = [
    "ALLGATHER_OBJECT",
    "FRAME_BYTES",
    "allgather_packed",
    "bcast_object",
    "bcast_object_signature",
    "bcast_packed",
    "fail",
    "frame_of",
    "gathered_frame_bytes",
    "unpack",
]

FRAME_BYTES = 512  # of a broadcast, and of a gather between few ranks
_MANY_RANKS = 33
_SHORT_FRAME_BYTES = 64  # of a gather between many, each of which gets them all
_LENGTH = struct.Struct("=q")  # which the kernels read, too: kernels/bindings/fast_path
ALLGATHER_OBJECT = Signature("allgather_object")


def gathered_frame_bytes(size: int) -> int:
    """Return the size of each frame that `size` ranks gather."""
    return FRAME_BYTES if size < _MANY_RANKS else _SHORT_FRAME_BYTES


def frame_of(data: bytes, nbytes: int) -> Array:
    """Return the frame of a pickled object, or of ``b""``: uint8, shape (nbytes,), read-only.

    It is the beginning of memory that has the whole object.
    """
    memory = (_LENGTH.pack(len(data)) + data).ljust(nbytes, b"\0")
    return np.frombuffer(memory, np.uint8, count=nbytes)


def unpack(packed: Array) -> Any:
    """Return the object of a frame in which it is whole, or of memory that begins as a frame."""
    return pickle.loads(packed[_LENGTH.size : _LENGTH.size + _length_in(packed)].data)


def _length_in(frame: Array) -> int:
    return int(_LENGTH.unpack_from(frame.data)[0])


def _whole(frame: Array) -> Array:
    """Return the memory whose beginning this rank's own frame is, up to the object's end."""
    memory = np.frombuffer(cast("bytes", frame.base), np.uint8)
    return memory[: _LENGTH.size + _length_in(frame)]


# ------------------------------------------------------------------------------------------- calls


def bcast_object_signature(root: int) -> Signature:
    """Return what must agree on all ranks in `bcast_packed`."""
    return Signature("bcast_object", root=root)


def bcast_packed(gate: Gate, frame: Array, root: int, out: Array | None = None) -> Steps:
    """Return the root's frame, or its memory if the object is not whole in the frame."""
    check_root(root, gate.size, "bcast_object")
    return _bcast(gate, frame, root, out)


def _bcast(gate: Gate, frame: Array, root: int, out: Array | None) -> Steps:
    is_root = gate.rank == root
    own = _whole(frame)
    nbytes = own.size if is_root else 0
    if gate.carries_headers:
        copy = np.empty_like(frame) if out is None else out
        if is_root:
            copy[:] = frame
        transfer = partial(gate.backend.bcast, copy, root)
        yield from gate.carry(bcast_object_signature(root), transfer, nbytes=nbytes, is_all=False)
        length = _LENGTH.size + _length_in(copy)
        if length <= frame.size:
            return copy
    else:
        yield from gate.cross(bcast_object_signature(root), extra=nbytes, nbytes=nbytes)
        length = int(gate.extras[root])
    packed = own.copy() if is_root else np.empty(length, np.uint8)
    yield from gate.backend.bcast(packed, root)
    return packed


def allgather_packed(gate: Gate, frame: Array, out: Array | None = None) -> Steps:
    """Return all ranks' frames, one behind the other; or a list of memory as of `bcast_packed`."""
    own = _whole(frame)
    if gate.carries_headers:
        counts = [frame.size] * gate.size
        gathered = np.empty(sum(counts), np.uint8) if out is None else out
        transfer = partial(gate.backend.allgather, frame, gathered, counts)
        yield from gate.carry(ALLGATHER_OBJECT, transfer, nbytes=own.size, is_all=False)
        frames = gathered.reshape(gate.size, -1)
        lengths = [_LENGTH.size + _length_in(one) for one in frames]
        if max(lengths) <= frame.size:
            return gathered
    else:
        yield from gate.cross(ALLGATHER_OBJECT, extra=own.size, nbytes=own.size)
        lengths = gate.extras.tolist()
    everything = np.empty(sum(lengths), np.uint8)
    yield from gate.backend.allgather(own, everything, lengths)
    return np.split(everything, np.cumsum(lengths[:-1]))


def bcast_object(gate: Gate, value: Any, root: int) -> Steps:
    """Return the root's `value`: for other operations, which begin with it."""
    data = pack(value) if gate.rank == root else b""
    return unpack((yield from bcast_packed(gate, frame_of(data, FRAME_BYTES), root)))


def fail(gate: Gate, error: Exception) -> Steps:
    """Raise `error`, as an operation does that refuses its arguments."""
    raise error
