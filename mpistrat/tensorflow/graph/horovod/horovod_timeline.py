"""Add the events of Horovod's own timeline to the job's (``MPISTRAT_TIMELINE``).

Horovod's first rank writes the phases of each tensor: the negotiation, the copies into the fusion
buffer, the transfer. They appear beside the calls of the ranks, as a process of its own with a
thread for each tensor.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from mpistrat.collectives.health import timeline

__all__ = ["events_of", "start", "stop", "variables"]

_VARIABLE = "HOROVOD_TIMELINE"
_PID = 1  # no other process of a timeline has this one: theirs are hashes of host names
_files: list[Path] = []


def variables() -> dict[str, str]:
    """Return what lets Horovod begin a timeline after it was initialised. **Local.**"""
    return {_VARIABLE: "DYNAMIC"} if _is_wanted() else {}


def start(horovod: Any) -> None:
    """Let Horovod write its timeline, on its first rank, if the job has one. **Local.**"""
    if _is_wanted() and horovod.rank() == 0:
        with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as file:
            _files.append(Path(file.name))
        horovod.start_timeline(str(_files[-1]), mark_cycles=False)


def stop(horovod: Any) -> None:
    """Take the events of Horovod's timeline into the job's. **Local.**"""
    while _files:
        file = _files.pop()
        try:
            horovod.stop_timeline()
            timeline.add(events_of(file.read_text()))
        except (
            OSError,
            ValueError,
        ) as error:  # it helps to look at a program, and must not end it
            sys.stderr.write(f"[mpistrat] Horovod's timeline is left out: {error}\n")
        finally:
            file.unlink(missing_ok=True)


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a timeline of Horovod, in microseconds since 2025.

    Horovod has a process for each tensor, and leaves the array open where it is stopped.
    """
    body = text.strip().rstrip(",").removesuffix("]").rstrip().rstrip(",")
    events: list[dict[str, Any]] = [event for event in json.loads(body + "]") if event]
    starts = [
        event["args"]["start_time_since_epoch_in_micros"]
        for event in events
        if "start_time_since_epoch_in_micros" in event.get("args", {})
    ]
    if not starts:
        raise ValueError("it does not say when it began")
    shift = starts[0] - timeline.EPOCH_NS // 1000
    names = [
        {"name": "process_name", "ph": "M", "pid": _PID, "args": {"name": "Horovod"}},
        *(
            {**event, "name": "thread_name", "pid": _PID, "tid": event["pid"]}
            for event in events
            if event.get("name") == "process_name" and "name" in event["args"]
        ),
    ]
    phases = [
        {**event, "pid": _PID, "tid": event["pid"], "ts": event["ts"] + shift}
        for event in events
        if "ts" in event
    ]
    return names + phases


def _is_wanted() -> bool:
    """Tell whether the job has a timeline, and the user wants none of Horovod's for itself."""
    return timeline.is_on() and _VARIABLE not in os.environ
