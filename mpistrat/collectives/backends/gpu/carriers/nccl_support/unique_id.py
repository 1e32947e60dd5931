"""Tell NCCL's unique id to all ranks, in the form in which each one's CuPy has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.types import Array

__all__ = ["shared_id"]

_ID_BYTES = 128
_BYTES, _TUPLE = 1, 2  # CuPy 14 has ids as bytes, versions before it as tuples of numbers


def shared_id(host: Backend) -> Steps:
    """Return a new id, the same on all ranks, and None; or None and why there is none.

    **Collective.** Why there is none is known on rank 0 alone.
    """
    word, reason = np.zeros(_ID_BYTES + 1, np.uint8), None  # the last one: how CuPy has it
    if host.rank == 0:
        reason = _get_id(word)
    yield from host.bcast(word, 0)
    if not word.any():
        return None, reason or "rank 0 got no id from NCCL"
    data = word[:_ID_BYTES]
    is_bytes = word[_ID_BYTES] == _BYTES
    return data.tobytes() if is_bytes else tuple(data.view(np.int8).tolist()), None


def _get_id(word: Array) -> str | None:
    """Write an id of NCCL, and how CuPy has it; return why there is none, or None. **Local.**"""
    from cupy.cuda import nccl

    try:
        # On rank 0 alone: NCCL begins to listen for ranks at each of its ids.
        name: Any = nccl.get_unique_id()
    except Exception as error:  # noqa: BLE001 - the others wait for what comes of it
        return f"NCCL gives no id: {type(error).__name__}: {error}"
    is_bytes = isinstance(name, bytes)
    data = name if is_bytes else bytes(one & 255 for one in name)
    word[:_ID_BYTES] = np.frombuffer(data, np.uint8)
    word[_ID_BYTES] = _BYTES if is_bytes else _TUPLE
    return None
