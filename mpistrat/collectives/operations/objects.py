"""Send small Python objects, pickled (cloudpickle), within the job's own communicator only."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.errors import ArgumentTypeError
from mpistrat.types import Array

__all__ = ["allgather_object", "bcast_object"]


def bcast_object(gate: Gate, value: Any, root: int) -> Steps:
    """See `Communicator.bcast_object`."""
    check_root(root, gate.size, "bcast_object")
    data = _pack(value) if gate.rank == root else b""
    return _bcast(gate, data, root)


def allgather_object(gate: Gate, value: Any) -> Steps:
    """See `Communicator.allgather_object`."""
    return _allgather(gate, _pack(value))


def _bcast(gate: Gate, data: bytes, root: int) -> Steps:
    yield from gate.cross(Signature("bcast_object", root=root), extra=len(data), nbytes=len(data))
    buffer = np.empty(int(gate.extras[root]), np.uint8)
    if gate.rank == root:
        buffer[:] = np.frombuffer(data, np.uint8)
    yield from gate.backend.bcast(buffer, root)
    return pickle.loads(buffer.tobytes())


def _allgather(gate: Gate, data: bytes) -> Steps:
    yield from gate.cross(Signature("allgather_object"), extra=len(data), nbytes=len(data))
    counts = gate.extras.tolist()
    everything = np.empty(sum(counts), np.uint8)
    yield from gate.backend.allgather(np.frombuffer(data, np.uint8), everything, counts)
    return [pickle.loads(piece) for piece in _pieces(everything, counts)]


def _pieces(everything: Array, counts: list[int]) -> list[bytes]:
    ends = np.cumsum(counts)
    return [everything[e - n : e].tobytes() for e, n in zip(ends, counts, strict=True)]


def _pack(value: Any) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ArgumentTypeError(
            f"a {type(value).__name__} cannot be pickled: {error}; send plain data instead"
        ) from error
