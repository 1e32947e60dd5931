"""The fingerprint of a call: what ranks must agree on, and a digest of it.

A call's *signature* is a tuple ``(op, reduction, dtype, shape, root, axis, bucket_bytes, memory)``
with None where ranks may differ, or where the arrays are in memory of the host. Its digest (of
BLAKE2b, an int64) travels in every header (headers.py). How it is put in words
is in mismatch_message.py.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["INVALID", "NO_MEMORY", "Signature", "digest"]

INVALID = 1
"""Digest of a call that its rank refused; all ranks refusing alike is no mismatch."""

NO_MEMORY = -1
"""Digest of a call for which its rank's GPU has not enough memory; others are never below 0."""


class Signature(NamedTuple):
    """What must agree on all ranks in one call, but for `where`.

    Attributes
    ----------
    where
        This rank's GPU and what carries the data, as far as known, for the record of the call
        (call_record.py); None for arrays of the host.
    """

    op: str
    reduction: str | None = None
    dtype: Any = None
    shape: Any = None
    root: int | None = None
    axis: int | None = None
    bucket_bytes: int | None = None
    memory: str | None = None
    where: str | None = None


@lru_cache(maxsize=4096)
def digest(signature: Signature, label: str | None = None) -> int:
    """Return an int64, at least 2, for a signature and a label; equal on every machine."""
    text = "\x1f".join(map(str, (*signature[:-1], label))).encode()
    # Shifted to fit in an int64; with bit 1 set it is neither 0, of unchecked calls, nor INVALID.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1 | 2
