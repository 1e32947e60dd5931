"""Run replica functions with the GPU of their replica as CuPy's current one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mpistrat.collectives.arrays import on_device
from mpistrat.strategy import context

__all__ = ["on_its_gpu"]


def on_its_gpu(fn: Callable[..., Any], gpus: Sequence[int | None]) -> Callable[..., Any]:
    """Return a replica function that runs with the GPU of its replica as the current one.

    The stream that is the caller's current one for that GPU is the replica's, too, also where
    the replica has a thread of its own.

    Parameters
    ----------
    fn
        Called by each replica.
    gpus
        Index of each local replica's GPU; None for a replica on a CPU.
    """
    if all(gpu is None for gpu in gpus):
        return fn
    # Current GPUs and streams are a thread's own: they are found here, in the caller's, and set in
    # the replica's.
    places = [None if gpu is None else on_device.stream_of(gpu) for gpu in gpus]

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        replica = context.get_replica_context()
        place = None if replica is None else places[replica.local_index]
        if place is None:
            return fn(*args, **kwargs)
        with place():
            return fn(*args, **kwargs)

    return call
