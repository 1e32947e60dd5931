"""Run replica functions with the GPU of their replica as CuPy's current one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

from mpistrat.collectives.arrays.gpu_streams import StreamHere
from mpistrat.strategy import context

__all__ = ["handing_over", "on_its_gpu"]

_callers: ContextVar[StreamHere | None] = ContextVar("mpistrat_callers_stream", default=None)


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
    places = [None if gpu is None else StreamHere(gpu) for gpu in gpus]

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        replica = context.get_replica_context()
        place = None if replica is None else places[replica.local_index]
        if place is None:
            return fn(*args, **kwargs)
        token = _callers.set(place)
        try:
            with place.current():
                return fn(*args, **kwargs)
        finally:
            _callers.reset(token)

    return call


def handing_over() -> AbstractContextManager[None]:
    """Order a merge call, which runs in the caller's thread, with the replica's own stream.

    The replica may have made another stream the current one.
    """
    place = _callers.get()
    return nullcontext() if place is None else place.between()
