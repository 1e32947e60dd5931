"""Set up shared memory between the ranks of a machine by MPI, and test that it works."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.cluster.topology import host_name
from mpistrat.collectives.backends.base import Backend, LateRequest, Request, Steps
from mpistrat.collectives.backends.shared_memory import segment, tuning, tuning_table
from mpistrat.collectives.backends.shared_memory.segment import Segment
from mpistrat.collectives.backends.shared_memory.tuning import Tunings
from mpistrat.collectives.checking import deadlock
from mpistrat.collectives.progress.work import abandon
from mpistrat.errors import BackendUnavailableError, CommunicationTimeoutError
from mpistrat.system.liveness.pidfd import Process
from mpistrat.system.log import get_logger
from mpistrat.system.waiting import wait_until

__all__ = ["Met", "exchange", "kept", "meet", "run", "share"]

_LOG = get_logger(__name__)
_TEXT_BYTES = 512
_PAUSE_S = 1e-5  # each exchange takes some 10 µs once all are here


@dataclass(frozen=True)
class Met:
    """What the ranks of one machine share.

    Attributes
    ----------
    cpus
        How many processors they may run on, all together.
    tunings
        Rank 0's, for all of them.
    """

    segment: Segment
    processes: list[Process]
    cpus: int
    tunings: Tunings


def meet(
    backend: Backend, nbytes: Callable[[int], int], refusal: str | None, timeout: float
) -> Met:
    """Make a segment that all ranks have mapped. **Collective.**

    Parameters
    ----------
    backend
        Carries the messages.
    nbytes
        Size of the segment for a number of ranks.
    refusal
        Why this rank cannot take part, or None.
    timeout
        Seconds to wait for the others.

    Raises
    ------
    BackendUnavailableError
        On all ranks: some cannot take part, or do not see the memory of rank 0.
    """
    me = Process.current()
    # The refusal comes last, since it is free text that may have tabs.
    here = "\t".join([host_name(), str(me.pid), me.namespace, f"{_cpus():x}", refusal or ""])
    rows = [row.split("\t", 4) for row in run(exchange(backend, here), timeout, backend)]
    # On rows that all ranks have alike, so that all raise or none does.
    _check_rows(rows)
    found = run(share(backend, nbytes(backend.size)), timeout, backend)
    mine = _tunings(backend.size) if backend.rank == 0 else {}
    tunings = tuning.from_text(run(_told(backend, tuning.to_text(mine)), timeout, backend))
    mask = 0
    for row in rows:
        mask |= int(row[3], 16)
    return Met(
        found,
        [Process(int(pid), space) for _, pid, space, *_ in rows],
        mask.bit_count(),
        tunings,
    )


def _tunings(ranks: int) -> Tunings:
    return tuning_table.find(tuning_table.node_key(ranks), tuning.from_entry)


def _check_rows(rows: list[list[str]]) -> None:
    for rank, (*_, refusal) in enumerate(rows):
        if refusal:
            raise BackendUnavailableError(f"rank {rank}: {refusal}")
    hosts = {host for host, *_ in rows}
    if len(hosts) > 1:
        raise BackendUnavailableError(
            f"the ranks are on {len(hosts)} nodes, which share no memory; use backend='auto'"
        )


def share(backend: Backend, nbytes: int) -> Steps:
    """Make a segment that all ranks of this machine have mapped; return it. **Collective.**

    Each rank holds an equal part of it next to its processor.

    Raises
    ------
    BackendUnavailableError
        On all ranks: there is not enough memory, or some do not see that of rank 0.
    """
    complaint = ""
    for in_memory in (True, False):
        segment, complaint = yield from _share(backend, nbytes, in_memory)
        if segment is not None:
            return segment
        _LOG.info("no shared memory by %s: %s", "memfd" if in_memory else "/dev/shm", complaint)
    raise BackendUnavailableError(f"the ranks cannot share {nbytes} bytes of memory: {complaint}")


def _share(
    backend: Backend, nbytes: int, in_memory: bool
) -> Generator[Request, None, tuple[Segment | None, str]]:
    """Try one kind of segment; returns it, or None and the reason, alike on all ranks."""
    made: Segment | None = None
    offer = complaint = ""
    if backend.rank == 0:
        try:
            made = segment.create(nbytes, in_memory)
            offer = f"{made.path}\t{made.nonce}"
        except OSError as error:
            complaint = f"rank 0: {error}"
    try:
        offers = yield from exchange(backend, offer)
        if offers[0]:
            made, complaint = _take_part(backend, nbytes, offers[0], made)
        complaints = [text for text in (yield from exchange(backend, complaint)) if text]
    finally:
        # Once all have mapped it or reported why not, and where the wait was given up: a name in
        # /dev/shm would outlive the job.
        if made is not None:
            made.release_name()
    return (None, complaints[0]) if complaints else (made, "")


def _take_part(
    backend: Backend, nbytes: int, offer: str, made: Segment | None
) -> tuple[Segment | None, str]:
    path, nonce = offer.split("\t")
    try:
        made = made or segment.open_existing(path, nbytes, nonce)
        made.reserve(backend.rank, backend.size)
    except OSError as error:
        return made, f"rank {backend.rank}: {error}"
    return made, ""


def exchange(backend: Backend, text: str) -> Generator[Request, None, list[str]]:
    """Return all ranks' texts (at most 512 bytes), by rank. **Collective.**"""
    mine = np.zeros(_TEXT_BYTES, np.uint8)
    data = np.frombuffer(text.encode()[:_TEXT_BYTES], np.uint8)
    mine[: data.size] = data
    table = np.empty(_TEXT_BYTES * backend.size, np.uint8)
    with kept(mine, table):
        yield from backend.allgather(mine, table, [_TEXT_BYTES] * backend.size)
    rows = table.reshape(backend.size, _TEXT_BYTES)
    return [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]


def _told(backend: Backend, text: str) -> Generator[Request, None, str]:
    """Return rank 0's text, of any length. **Collective.**"""
    data = np.frombuffer(text.encode(), np.uint8)
    length = np.array([data.size])
    with kept(length):
        yield from backend.bcast(length, 0)
    data = data.copy() if backend.rank == 0 else np.empty(length[0], np.uint8)
    with kept(data):
        yield from backend.bcast(data, 0)
    return data.tobytes().decode()


def run(steps: Steps, timeout: float, backend: Backend) -> Any:
    """Carry out a transfer before there is a gate; return its result."""
    end = time.monotonic() + timeout
    complaint = (
        f"rank {backend.rank}/{backend.size} waited {timeout:.0f} s for all ranks to make this"
        " strategy or communicator; make it on every rank of comm"
    )
    try:
        while True:
            _wait(next(steps), end, complaint)
    except StopIteration as stop:
        return stop.value
    finally:
        steps.close()  # which gives back what it holds


def _wait(request: Request, end: float, complaint: str) -> None:
    def let_others_go_on(_: float) -> None:
        deadlock.current().progress()  # a peer may wait for them before it comes here

    with kept(request):
        if not wait_until(request.Test, end - time.monotonic(), _PAUSE_S, look=let_others_go_on):
            if not isinstance(request, LateRequest):
                raise CommunicationTimeoutError(complaint)
            what, missing = request.late()
            raise CommunicationTimeoutError(f"{complaint}; {what}", missing)


@contextmanager
def kept(*buffers: Any) -> Iterator[None]:
    """Keep the buffers of a transfer for good if it is given up in this block. **Local.**

    MPI writes to them once the others come. Not all of its requests keep them alive.
    """
    try:
        yield
    except BaseException:
        abandon(buffers)
        raise


def _cpus() -> int:
    """Return the set of processors that this rank may use, as bits."""
    if not hasattr(os, "sched_getaffinity"):
        return (1 << (os.cpu_count() or 1)) - 1
    return sum(1 << cpu for cpu in os.sched_getaffinity(0))
