"""Write a timeline of all calls of all ranks, for https://ui.perfetto.dev.

``MPISTRAT_TIMELINE=run.json`` writes Chrome's trace format: an array of events, one for each call,
with a process for each node and a thread for each rank. Calls with arrays on GPUs show, besides
their bytes, the GPU of the rank and what carried them (``memory``, ``device``, ``carrier``); they
last until the call has returned, not until the GPU has done what it queued.

Each rank writes a file of its own, ``run.json.rank<N>``, which is valid JSON after every write
(once a second at least). At the end of a job that went well every rank moves what it wrote into
``run.json``; after a failure the files stay as they are, since nobody knows which ranks still
live. With ``{rank}`` in the name every rank keeps its own file in any case.

All times are those of one clock: ranks of one machine share the monotonic clock, and between
machines the difference is measured when a communicator is made. Without records
(``MPISTRAT_CHECKS=0``) there is no timeline.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.errors import UsageError
from mpistrat.system.files.file_locks import try_to_lock
from mpistrat.system.log import get_logger, warn_once
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase

if TYPE_CHECKING:
    from mpistrat.collectives.checking.settings_check import Facts
    from mpistrat.collectives.communicator import Communicator
    from mpistrat.collectives.health.call_record import CallRecord
    from mpistrat.collectives.health.recorder import Recorder

_LOG = get_logger(__name__)

__all__ = ["EPOCH_NS", "Timeline", "add", "clock", "finish", "flush", "follow", "is_on"]

_HEAD, _TAIL = b"[\n", b"\n]\n"
_HELD = 4096  # events in memory before they are written
_NAP_S = 0.01  # between looks whether another rank still moves its part
_ROUNDS = 8  # of measuring the difference of two clocks
EPOCH_NS = 1_735_689_600 * 10**9  # the year 2025; viewers lose digits of larger numbers


def clock() -> int:
    """Return what to add to this machine's monotonic clock for the time since 2025. **Local.**"""
    return time.time_ns() - EPOCH_NS - time.monotonic_ns()


class Timeline:
    """What one process writes: the calls of all its communicators.

    Parameters
    ----------
    path
        The file of the job (see the module).
    rank, size
        Of this process in the job.
    host
        Name of the machine.
    shift_ns
        What to add to the monotonic clock.

    Attributes
    ----------
    lock
        To be held when records are handed over.
    """

    def __init__(self, path: str, rank: int, size: int, host: str, shift_ns: int) -> None:
        has_own = size == 1 or "{rank}" in path
        self._target = None if has_own else Path(path)
        self._path = Path(path.replace("{rank}", str(rank)) if has_own else f"{path}.rank{rank}")
        self._rank, self._size, self._host, self._shift_ns = rank, size, host, shift_ns
        self._node = zlib.crc32(host.encode()) >> 1  # alike on all its ranks
        self._pid = os.getpid()
        self._recorders: dict[Recorder, int] = {}
        self._ranks: set[int] = set()
        self._events: list[str] = []
        self._is_over = False
        self.lock = threading.RLock()
        try:
            if self._target is not None and rank == 0:
                self._target.unlink(missing_ok=True)  # of an earlier job
            self._path.write_bytes(_HEAD + _TAIL)
        except OSError as error:
            raise UsageError(
                f"MPISTRAT_TIMELINE={path!r}: cannot be written ({error}); name a file in a folder"
                " that exists and is this user's"
            ) from error

    def follow(self, recorder: Recorder) -> None:
        """Take the calls of another communicator from now on."""
        with self.lock:
            self._recorders[recorder] = len(self._recorders)
            recorder.feed(self)

    def add(self, record: CallRecord, recorder: Recorder) -> None:
        """Take a call that is over, or is the last one."""
        if self._is_over:
            return
        rank = recorder.rank if self._size == 1 else self._rank
        if rank not in self._ranks:
            self._ranks.add(rank)
            self._name("process_name", rank, self._host)
            self._name("thread_name", rank, f"rank {rank}")
        end_ns = time.monotonic_ns() if record.end_ns is None else record.end_ns
        place = {"memory": record.memory, "device": record.device, "carrier": record.carrier}
        self._put(
            name=record.op,
            cat="collective",
            ph="X",
            ts=(record.start_ns + self._shift_ns) / 1e3,
            dur=(end_ns - record.start_ns) / 1e3,
            pid=self._node,
            tid=rank,
            args={
                "sequence": record.sequence,
                "bytes": record.nbytes,
                "dtype": record.dtype,
                "reduction": record.reduction,
                "label": record.label,
                "state": record.state,
                "communicator": self._recorders[recorder],
                **(place if record.memory == "GPU" else {}),
            },
        )
        if len(self._events) >= _HELD:
            self._write()

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of something else than a call, as Chrome's format has it."""
        if not self._is_over:
            with self.lock:
                self._put(**event)

    def _name(self, what: str, rank: int, name: str) -> None:
        self._put(name=what, ph="M", pid=self._node, tid=rank, args={"name": name})

    def _put(self, **event: Any) -> None:
        self._events.append(json.dumps(event, separators=(",", ":")))

    def flush(self, is_end: bool = False) -> None:
        """Write what has come so far; at the end the calls under way, too."""
        if os.getpid() != self._pid:  # a forked child
            return
        with self.lock:
            if not self._is_over:
                for recorder in self._recorders:
                    recorder.drain(is_end)
                self._write()

    def _write(self) -> None:
        if not self._events:
            return
        text = ",\n".join(self._events).encode()
        self._events.clear()
        try:
            with _open(self._path) as file:
                _append(file, text)
        except OSError as error:  # it helps to look at a program, and must not end it
            self._is_over = True
            sys.stderr.write(f"[mpistrat] the timeline ends here: {self._path}: {error}\n")

    def finish(self, is_well: bool) -> None:
        """Write the rest; if the job went well, move it into the file of the job. Idempotent."""
        if os.getpid() != self._pid:
            return
        with self.lock:
            self.flush(is_end=True)
            if not self._is_over and is_well and self._target is not None:
                self._move(self._target)
            self._is_over = True

    def _move(self, target: Path) -> None:
        try:
            events = self._path.read_bytes()[len(_HEAD) : -len(_TAIL)]
            with _open(target) as file:
                limit = config.timeout_s()
                if not try_to_lock(file, limit, _NAP_S):
                    raise TimeoutError(f"another process holds {target} for {limit:.0f} s")
                _append(file, events)
            self._path.unlink()
        except OSError as error:  # such as a file system without locks: the parts stay
            sys.stderr.write(f"[mpistrat] the timeline stays in {self._path}: {error}\n")


def _open(path: Path) -> FileIO:
    # No mode of `open` makes a missing file, keeps an old one and writes in the middle of it.
    # Unbuffered, so that a block of events is one write.
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")


def _append(file: FileIO, events: bytes) -> None:
    """Add events before the end of the array, or leave it as it was.

    It is one write, so that a kill hardly ever cuts it.
    """
    size = os.fstat(file.fileno()).st_size
    is_first = size <= len(_HEAD + _TAIL)
    if not events and size > 0:
        return
    start = 0 if is_first else size - len(_TAIL)
    data = (_HEAD if is_first else b",\n") + events + _TAIL
    try:
        _write_at(file, start, data)
    except OSError:
        _write_at(file, start, _HEAD + _TAIL if is_first else _TAIL)
        file.truncate()
        raise


def _write_at(file: FileIO, start: int, data: bytes) -> None:
    """Write all of `data`; a disk that is almost full takes a part without an error."""
    file.seek(start)
    while data:
        data = data[file.write(data) :]


_timeline: Timeline | None = None
_lock = threading.Lock()


def follow(communicator: Communicator, facts: Sequence[Facts]) -> None:
    """Take a new communicator's calls into the timeline, if there is to be one. **Collective.**"""
    global _timeline  # noqa: PLW0603 - a process has one
    path, recorder = config.timeline(), communicator.call_log.recorder
    if not path:
        return
    if recorder.ring is None:
        warn_once(
            _LOG,
            "no records",
            "MPISTRAT_TIMELINE is not written with MPISTRAT_CHECKS=0, which records no calls;"
            " unset one of them",
        )
        return
    shift_ns = _shift_ns(communicator, facts)
    with _lock:
        if _timeline is None:
            world = mpi.world()
            rank, size = (0, 1) if world is None else (world.rank, world.size)
            host = facts[communicator.rank].host
            _timeline = Timeline(path, rank, size, host, shift_ns)
            if size == 1:
                # Of larger jobs shutdown.py does it, which knows whether they have ended well.
                exit_hooks.register(Phase.TIMELINE, lambda: finish(is_well=True))
    _timeline.follow(recorder)


def _shift_ns(communicator: Communicator, facts: Sequence[Facts]) -> int:
    """Return what makes this machine's monotonic clock the time since 2025 of rank 0's."""
    first, mine = facts[0], facts[communicator.rank]
    if len({fact.host for fact in facts}) == 1:
        return first.clock
    times = []
    for _ in range(_ROUNDS):  # ranks leave a barrier at about the same time
        communicator.barrier()
        times.append(time.monotonic_ns())
    everyone = communicator.allgather_object(times)
    if mine.host == first.host:
        return first.clock
    return first.clock + int(
        statistics.median(a - b for a, b in zip(everyone[0], times, strict=True))
    )


def is_on() -> bool:
    """Tell whether this process writes a timeline. **Local.**"""
    return _timeline is not None


def add(events: Iterable[Mapping[str, Any]]) -> None:
    """Add events of something else, with ``ts`` in microseconds since 2025. **Local.**"""
    if _timeline is not None:
        for event in events:
            _timeline.add_event(event)


def flush() -> None:
    """Write what has come so far. **Local.**"""
    if _timeline is not None:
        _timeline.flush()


def finish(is_well: bool) -> None:
    """Write the rest at the end of the program. **Local**, idempotent."""
    if _timeline is not None:
        _timeline.finish(is_well)
