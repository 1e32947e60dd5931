"""How the ranks of a machine come to share memory: they meet by MPI, and check that it worked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.cluster.log import get_logger
from mpistrat.cluster.topology import host_name
from mpistrat.collectives import segment
from mpistrat.collectives.base import Backend, Steps
from mpistrat.collectives.segment import Segment
from mpistrat.errors import BackendUnavailableError, CommunicationTimeoutError

__all__ = ["Met", "Process", "exchange", "meet", "run"]

_LOG = get_logger(__name__)
_TEXT_BYTES = 512


@dataclass(frozen=True)
class Process:
    """A rank's process: its number, and the namespace in which it has that number."""

    pid: int
    namespace: str


@dataclass(frozen=True)
class Met:
    """What the ranks of one machine share."""

    segment: Segment
    processes: list[Process]


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
    here = f"{host_name()}\t{os.getpid()}\t{_namespace()}\t{refusal or ''}"
    rows = [row.split("\t", 3) for row in exchange(backend, here, timeout)]
    _check_rows(rows)
    for in_memory in (True, False):
        found, complaint = _share(backend, nbytes(backend.size), in_memory, timeout)
        if found is not None:
            return Met(found, [Process(int(pid), space) for _, pid, space, _ in rows])
        _LOG.info("no shared memory by %s: %s", "memfd" if in_memory else "/dev/shm", complaint)
    raise BackendUnavailableError(f"the ranks cannot share memory: {complaint}")


def _check_rows(rows: list[list[str]]) -> None:
    for rank, (*_, refusal) in enumerate(rows):
        if refusal:
            raise BackendUnavailableError(f"rank {rank}: {refusal}")
    hosts = {host for host, *_ in rows}
    if len(hosts) > 1:
        raise BackendUnavailableError(
            f"the ranks are on {len(hosts)} nodes, which share no memory; use backend='auto'"
        )


def _share(
    backend: Backend, nbytes: int, in_memory: bool, timeout: float
) -> tuple[Segment | None, str]:
    """Try one kind of segment; returns it, or None and the reason, alike on all ranks."""
    mine, offer = None, ""
    if backend.rank == 0:
        try:
            mine = segment.create(nbytes, in_memory)
            offer = f"{mine.path}\t{mine.nonce}"
        except OSError as error:
            offer = f"\t{error}"
    path, found = exchange(backend, offer, timeout)[0].split("\t", 1)
    complaint = ""
    if not path:
        complaint = found
    elif backend.rank != 0:
        try:
            mine = segment.open_existing(path, nbytes, found)
        except OSError as error:
            complaint = f"rank {backend.rank}: {error}"
    complaints = [text for text in exchange(backend, complaint, timeout) if text]
    if mine is not None:
        mine.release_name()
    return (None, complaints[0]) if complaints else (mine, "")


def exchange(backend: Backend, text: str, timeout: float) -> list[str]:
    """Return all ranks' texts (at most 512 bytes), by rank. **Collective.**"""
    mine = np.zeros(_TEXT_BYTES, np.uint8)
    data = np.frombuffer(text.encode()[:_TEXT_BYTES], np.uint8)
    mine[: data.size] = data
    table = np.empty(_TEXT_BYTES * backend.size, np.uint8)
    run(backend.allgather(mine, table, [_TEXT_BYTES] * backend.size), timeout, backend)
    rows = table.reshape(backend.size, _TEXT_BYTES)
    return [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]


def run(steps: Steps, timeout: float, backend: Backend) -> Any:
    """Carry out a transfer before there is a gate; return its result."""
    end = time.monotonic() + timeout
    try:
        while True:
            request = next(steps)
            while not request.Test():
                if time.monotonic() > end:
                    raise CommunicationTimeoutError(
                        f"rank {backend.rank}/{backend.size} waited {timeout:.0f} s for all ranks"
                        " to make this strategy or communicator; make it on every rank of comm"
                    )
                time.sleep(1e-5)
    except StopIteration as stop:
        return stop.value


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
