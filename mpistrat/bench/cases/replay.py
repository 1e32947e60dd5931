"""The case ``replay``: the collectives of a recorded timeline, without the program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.session import Session, open_session
from mpistrat.bench.options import (
    Backends,
    Json,
    Rounds,
    Seconds,
    parse_backends,
    told_to_the_user,
)
from mpistrat.bench.timeline_replay.buffers import check_memory, make_calls
from mpistrat.bench.timeline_replay.playback import Playback, play, why_wrong
from mpistrat.bench.timeline_replay.recorded_call import Recording
from mpistrat.bench.timeline_replay.report import print_record, record_of
from mpistrat.bench.timeline_replay.timeline_file import read_recording
from mpistrat.errors import UsageError

__all__ = ["command"]

_WIDTH = 200  # mpirun shows a width that is not the terminal's; tables take what they need
_MAX_GAPS_S = 600.0


def command(
    timeline: Annotated[
        Path,
        typer.Option(
            help="A file that a program wrote under MPISTRAT_TIMELINE; rank 0 reads it. The calls"
            " of its first rank are made, in their order."
        ),
    ],
    gaps: Annotated[
        bool,
        typer.Option(
            help="Also with the time between calls, in which the processor is kept busy."
        ),
    ] = False,
    backends: Backends = "auto",
    rounds: Rounds = 7,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time the collectives of a recorded program on the present ranks.

    Every kind of call is checked first; if an answer is wrong, nothing is timed and the exit
    status is 1. A list of arrays is one array of as many bytes, and the root is rank 0.
    """
    with told_to_the_user(), open_session(parse_backends(backends), []) as session:
        recording = _read(timeline, gaps, session.communicator)
        check_memory({call.kind for call in recording.calls}, session.communicator)
        is_right = _run(recording, gaps, session, Budget(rounds, seconds), json)
    if not is_right:
        raise typer.Exit(1)


def _read(path: Path, gaps: bool, communicator: Communicator) -> Recording:
    """Return what rank 0 reads; an error of it is one of all ranks. **Collective.**"""
    recording, reason = None, None
    if communicator.rank == 0:
        try:
            recording = read_recording(path)
            _check_gaps(recording, gaps)
        except UsageError as error:
            reason = str(error)
    recording, reason = communicator.bcast_object((recording, reason))
    if reason is not None:
        raise UsageError(reason)
    result: Recording = recording
    return result


def _check_gaps(recording: Recording, gaps: bool) -> None:
    if gaps and recording.gaps_us > _MAX_GAPS_S * 1e6:
        raise UsageError(
            f"--gaps: the calls of {recording.source} have {recording.gaps_us / 1e6:.0f} s between"
            f" them; expected {_MAX_GAPS_S:.0f} s at most; record fewer steps, or leave out --gaps"
        )


def _run(
    recording: Recording, gaps: bool, session: Session, budget: Budget, json: Path | None
) -> bool:
    """Check, measure and report each backend; return whether all was right. **Collective.**"""
    communicator = session.communicator
    console = Console(quiet=communicator.rank != 0, highlight=False, width=_WIDTH)
    are_right = True
    for one in session.backends.values():
        calls = make_calls(dict.fromkeys(call.kind for call in recording.calls), one)
        wrong = why_wrong(calls, one)
        if wrong is not None:
            console.print(f"{one.backend.name}: {wrong}", markup=False)
            are_right = False
            continue
        sides = (False, True) if gaps else (False,)
        share = budget.seconds / len(sides) / len(session.backends)
        found: list[Playback] = [
            play(recording, calls, one, with_gaps, budget.rounds, share) for with_gaps in sides
        ]
        records = [record_of(recording, playback, one) for playback in found]
        for record in records:
            print_record(console, record)
        if json is not None and communicator.rank == 0:
            write_lines(json, records)
    return are_right
