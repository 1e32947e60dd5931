"""Convert times to GB/s: algbw and busbw, as nccl-tests define them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["algbw_gbps", "busbw_gbps"]

_FACTORS: dict[str, Callable[[int], float]] = {
    "allreduce": lambda ranks: 2 * (ranks - 1) / ranks,
    **dict.fromkeys(
        ("reduce_scatter", "allgather", "gather", "scatter", "alltoall"),
        lambda ranks: (ranks - 1) / ranks,
    ),
    **dict.fromkeys(("bcast", "reduce", "barrier"), lambda ranks: 1.0),
}


def algbw_gbps(nbytes: int, time_us: float) -> float:
    """Return bytes over time, in 10⁹ bytes a second."""
    return nbytes / time_us / 1e3 if time_us > 0 else 0.0


def busbw_gbps(op: str, ranks: int, nbytes: int, time_us: float) -> float:
    """Return the algorithm bandwidth in terms of what each rank has to send and receive.

    That figure does not depend on the number of ranks, so it can be compared with the hardware's.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md.
    """
    return _FACTORS[op.removesuffix("_many")](ranks) * algbw_gbps(nbytes, time_us)
