"""Do on all ranks what may fail on some, such as to allocate memory: all or none of them go on."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from mpistrat.collectives.arrays.gpu_devices import memory_problem
from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.facts import exchange_bytes
from mpistrat.errors import BackendUnavailableError

__all__ = ["is_any", "new_memory", "opened", "reasons", "said"]

_REASON_BYTES = 512


class _Opened(Protocol):
    """What has a part on each rank; see `Carrier` for the methods."""

    def open(self) -> str | None: ...

    def meet(self) -> Steps: ...

    def leave(self) -> Steps | None: ...

    def close(self) -> None: ...


def opened(host: Backend, thing: _Opened) -> Steps:
    """Open something on all ranks; return why that failed, by rank, and close it if it did."""
    found = yield from reasons(host, _opened_here(thing))
    if not found:
        found = yield from reasons(host, (yield from thing.meet()))
        if found:
            yield from thing.leave() or ()
            yield from reasons(host, None)  # all have left
    if found:
        thing.close()
    return found


def _opened_here(thing: _Opened) -> str | None:
    try:
        return thing.open()
    except Exception as error:  # noqa: BLE001 - whatever it is, the others wait for the outcome
        return f"{type(error).__name__}: {error}"


def reasons(host: Backend, mine: str | None) -> Steps:
    """Return the reasons of those ranks that have one, by rank. **Collective.**"""
    text = (mine or "").encode()[:_REASON_BYTES]
    rows = yield from exchange_bytes(host, text, _REASON_BYTES)
    return {rank: row.decode(errors="replace") for rank, row in enumerate(rows) if row}


def is_any(host: Backend, mine: bool) -> Steps:
    """Return whether it is true on any rank. **Collective.**"""
    word = np.array([mine], np.int64)
    yield from host.allreduce(word, word, "max")
    return bool(word[0])


def new_memory(host: Backend, count: int, dtype: Any) -> Steps:
    """Return a new flat array on the current GPU; all ranks get one, or none. **Collective.**

    Parameters
    ----------
    count
        Elements, which may differ between ranks.

    Raises
    ------
    BackendUnavailableError
        On all ranks: some have not enough memory.
    """
    import cupy

    made, problem = None, None
    try:
        made = cupy.empty(count, dtype)
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        problem = memory_problem(error)
        if problem is None:
            raise
    if (yield from is_any(host, problem is not None)):
        found = yield from reasons(host, problem)
        raise BackendUnavailableError(said(found))
    return made


def said(found: dict[int, str]) -> str:
    """Return the reasons in one line."""
    return "; ".join(f"rank {rank}: {why}" for rank, why in found.items())
