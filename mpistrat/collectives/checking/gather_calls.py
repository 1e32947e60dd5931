"""Tell all ranks what each of them called, once their headers differ."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from mpistrat.collectives.backends.base import Backend, Request
from mpistrat.collectives.health.peers import decode

__all__ = ["gather_texts", "most_bytes"]

_MOST_OF_ONE, _MOST_OF_ALL = 1 << 20, 1 << 26  # bytes; lists of arrays may be long


def most_bytes(size: int) -> int:
    """Return how long a rank's text may be, among `size` ranks."""
    return min(_MOST_OF_ONE, _MOST_OF_ALL // size)


def gather_texts(backend: Backend, text: str) -> Generator[Request, None, dict[int, str]]:
    """Return each rank's `text`, by rank. **Collective.** Texts of over 1 MiB are cut."""
    size = backend.size
    mine = np.frombuffer(text.encode()[: most_bytes(size)], np.uint8)
    lengths = np.empty(size, np.int64)
    yield from backend.allgather(np.array([mine.size]), lengths, [1] * size)
    everyone = np.empty(lengths.sum(), np.uint8)
    yield from backend.allgather(mine, everyone, lengths.tolist())
    pieces = np.split(everyone, np.cumsum(lengths)[:-1])
    return {rank: decode(piece.tobytes()) for rank, piece in enumerate(pieces)}
