"""Check that all replicas hold the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["digests", "outliers"]


def digests(strategy: mpistrat.Strategy, variables: Sequence[mpistrat.Variable]) -> list[str]:
    """Return the SHA-256 of each replica's copies of `variables`, by replica id. **Collective.**

    Every rank gets those of all replicas.
    """

    def digest() -> Array:
        state = hashlib.sha256()
        for variable in variables:
            state.update(variable.numpy().tobytes())
        return np.frombuffer(state.digest(), np.uint8)[None]

    rows = strategy.gather(strategy.run(digest), axis=0)
    return [row.tobytes().hex() for row in rows]


def outliers(hashes: Sequence[str]) -> list[int]:
    """Return the replicas whose hash is not that of replica 0. **Local.**"""
    return [replica for replica, one in enumerate(hashes) if one != hashes[0]]
