"""Let the ranks of one machine take each other for ranks of several nodes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["pretended_nodes"]

_VARIABLE = "MPISTRAT_NODE_SIZE"


@contextlib.contextmanager
def pretended_nodes(ranks: int) -> Iterator[None]:
    """Take every `ranks` ranks of the job for a node; on all ranks, around what they open."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(ranks)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
