"""Read a timeline: the calls of its first rank, in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpistrat.bench.timeline_replay.event import Event, parse_event
from mpistrat.bench.timeline_replay.recorded_call import Kind, RecordedCall, Recording
from mpistrat.errors import UsageError

__all__ = ["MAX_FILE_BYTES", "read_recording"]

MAX_FILE_BYTES = 1 << 28
"""Of a file that is read; Python objects take some ten times as much memory."""


def read_recording(path: Path) -> Recording:
    """Return the calls of the first rank that a timeline has, by the time of their start.

    A list of arrays is one call of its bytes, and every root is rank 0: a timeline has neither
    shapes nor roots. **Local.**

    Raises
    ------
    UsageError
        The file cannot be read, is too large, is no timeline, or has no call to replay. The
        message has its name, and the number of the event if one is wrong.
    """
    parsed = [_parsed(path, number, event) for number, event in enumerate(_load(path))]
    events = [one for one in parsed if one is not None]
    if not events:
        raise UsageError(
            f"{path}: there is no call in it; expected a timeline of MPISTRAT_TIMELINE"
        )
    rank = min(one.rank for one in events)
    mine = sorted((one for one in events if one.rank == rank), key=lambda one: one.start_us)
    brought = _most_brought(events)
    calls = [_call(one, brought) for one in mine if one.is_replayed]
    if not calls:
        raise UsageError(f"{path}: rank {rank} has no call that can be replayed")
    ranks = len({one.rank for one in events})
    return Recording(path.name, rank, ranks, _with_gaps(calls), len(mine) - len(calls))


def _load(path: Path) -> list[Any]:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} has {size / 1e6:.0f} MB; expected {MAX_FILE_BYTES / 1e6:.0f} MB at most:"
                " record fewer steps, or take the file of one rank ({rank} in its name)"
            )
        events = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"--timeline {path}: {error.strerror}; expected a file that MPISTRAT_TIMELINE wrote,"
            " such as run.json or run.json.rank0"
        ) from error
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested too deeply
        raise UsageError(f"{path} is no JSON: {error}; expected a timeline") from error
    if not isinstance(events, list):
        raise UsageError(f"{path} holds a {type(events).__name__}; expected an array of events")
    return events


def _parsed(path: Path, number: int, event: Any) -> Event | None:
    try:
        return parse_event(event)
    except UsageError as error:
        raise UsageError(f"{path}: event {number}: {error}") from error


def _most_brought(events: Sequence[Event]) -> dict[tuple[str, tuple[int, int]], int]:
    """Return the most that any rank brought to a call: to a scatter only its root brings any."""
    most: dict[tuple[str, tuple[int, int]], int] = {}
    for one in events:
        key = one.op, one.place
        most[key] = max(most.get(key, 0), one.nbytes)
    return most


def _call(one: Event, brought: dict[tuple[str, tuple[int, int]], int]) -> RecordedCall:
    is_of_root = one.op in ("scatter", "bcast_object")
    nbytes = brought[one.op, one.place] if is_of_root else one.nbytes
    kind = Kind(one.op, one.dtype, one.reduction, nbytes)
    return RecordedCall(kind, one.start_us, one.duration_us)


def _with_gaps(calls: Sequence[RecordedCall]) -> tuple[RecordedCall, ...]:
    found, end = [], calls[0].start_us
    for call in calls:
        # Calls of two communicators may overlap.
        found.append(replace(call, gap_us=max(0.0, call.start_us - end)))
        end = max(end, call.start_us + call.duration_us)
    return tuple(found)
