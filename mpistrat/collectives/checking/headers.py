"""The headers that ranks exchange at the gate (gate.py): this rank's, and all of them.

A header is four int64 words and room for a payload: ``[sequence, digest, failures, extra |
payload]``. The first three must be equal on all ranks. What a rank showed is in the table, and its
own header may already show a failure that came since: all ranks compare the rows of the table.
"""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.backends.base import HEAD_BYTES
from mpistrat.collectives.backends.control import HeaderExchange
from mpistrat.types import Array

__all__ = ["Headers", "with_length"]

_AGREED_BYTES = 24
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that different lengths give different digests


class Headers:
    """The memory that a backend sets up for headers. All methods are **Local**.

    Attributes
    ----------
    extras
        The last words of all ranks, shape (size,), once they were exchanged; a view.
    digests
        What each rank has shown of its call, likewise.
    failures
        How often each rank has failed, likewise.
    """

    def __init__(self, exchange: HeaderExchange, payload_bytes: int) -> None:
        self._mine, self._table = exchange.open(HEAD_BYTES + payload_bytes)
        self._words = self._mine[:HEAD_BYTES].view(np.int64)
        self._heads = self._table[:, :HEAD_BYTES].view(np.int64)
        self._agreed = self._table[:, :_AGREED_BYTES]
        self.digests = self._heads[:, 1]
        self.failures, self.extras = self._heads[:, 2], self._heads[:, 3]

    @property
    def sequence(self) -> int:
        """Number of calls shown."""
        return int(self._words[0])

    def count(self, digest: int, failures: int, extra: int) -> int:
        """Count one more call and fill in its header; return its number."""
        words = self._words
        words[0] += 1
        words[1], words[2], words[3] = digest, failures, extra
        return int(words[0])

    def show_failures(self, failures: int) -> None:
        """Show so many failures in the headers of calls that the kernels fill in."""
        self._words[2] = failures

    def bring(self, payload: Array) -> None:
        """Fill in the payload."""
        self._mine[HEAD_BYTES : HEAD_BYTES + payload.nbytes] = payload.view(np.uint8)

    def payloads(self, like: Array) -> Array:
        """Return all ranks' payloads, shape (size, like.size), dtype of `like`; a view."""
        return self._table[:, HEAD_BYTES : HEAD_BYTES + like.nbytes].view(like.dtype)

    def stand_alone(self) -> None:
        """Make the table of a rank that is the only one."""
        self._table[0] = self._mine

    def are_equal(self) -> bool:
        """Tell whether all ranks show the same call."""
        # As bytes: for a few ranks that is much faster than a comparison by NumPy.
        shown = self._agreed[0].tobytes()
        return bool(self._agreed.tobytes() == shown * len(self._table))

    def differ_by_length(self, digest: int) -> bool:
        """Tell whether all show the call of `digest`, each with a length of its own."""
        shown = zip(self._heads[:, 1].tolist(), self.extras.tolist(), strict=True)
        are_calls_equal = all(with_length(digest, length) == word for word, length in shown)
        # Sequences and failures, words 0 and 2, must agree; else it is a mismatch of another kind.
        return are_calls_equal and bool((self._heads[:, ::2] == self._heads[0, ::2]).all())


def with_length(digest: int, length: int) -> int:
    """Return the digest, an int64, of a call whose arrays have `length`."""
    word = digest + length * _SPREAD
    return (word + (1 << 63) & (1 << 64) - 1) - (1 << 63)
