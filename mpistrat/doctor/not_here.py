"""`NotHere`: the exception of a check that has nothing to look at."""

from __future__ import annotations

__all__ = ["NotHere"]


class NotHere(Exception):  # noqa: N818 - it is no error
    """A check has nothing to look at: no GPU, no Slurm, one rank; its text says which."""
