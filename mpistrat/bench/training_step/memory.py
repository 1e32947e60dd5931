"""Refuse a step for which the node has not enough memory."""

from __future__ import annotations

from pathlib import Path

from mpistrat.bench.harness.session import Session
from mpistrat.bench.models.gradient_set import GradientSet
from mpistrat.errors import UsageError

__all__ = ["check_memory"]

_COPIES = 4  # gradients, sums, and what libraries keep while they pack and reduce


def check_memory(gradients: GradientSet, session: Session) -> None:
    """Raise on all ranks if a node has not enough memory for its ranks. **Collective.**

    Raises
    ------
    UsageError
        The message has what is needed and what there is.
    """
    ranks = session.communicator.topology.local_size
    needed, available = _COPIES * gradients.nbytes * ranks, available_bytes()
    fits = available is None or needed <= available
    if not session.agree(fits):
        there = "less on another node" if fits else f"{(available or 0) / 1e9:.1f} GB here"
        raise UsageError(
            f"the gradients of {gradients.name} ({gradients.nbytes / 1e9:.2f} GB) need"
            f" {needed / 1e9:.1f} GB of memory on a node with {ranks} ranks, {_COPIES} copies a"
            f" rank; available: {there}; try fewer ranks a node, or a smaller --scale than"
            f" {gradients.scale:g}"
        )


def available_bytes() -> int | None:
    """Return the memory that this machine can give away, or None where that is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return None
    sizes = dict(line.split(":") for line in lines)
    kib = sizes.get("MemAvailable", "").split()
    return int(kib[0]) * 1024 if kib else None
