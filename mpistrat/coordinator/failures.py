"""Errors of functions on workers: how they are sent, and raised on the chief."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from mpistrat.cluster import mpi
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.errors import CoordinatorError, PeerLostError
from mpistrat.ps.transport.roles import Member
from mpistrat.system.sent_errors import SentError

__all__ = [
    "broken",
    "evaluator_lost",
    "half_applied",
    "no_stand_in",
    "packed",
    "ps_lost",
    "unpacked",
    "worker_lost",
]

_ADVICE = (
    "; this MPI does not outlive a rank: start the job again from the last checkpoint, or under"
    " Open MPI with mpirun --with-ft ulfm"
)
_LOOP = str(Path(__file__).with_name("worker.py"))


def packed(error: BaseException) -> SentError:
    """Return what the chief gets of a function's error: its text is the traceback."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == _LOOP:
        frames = frames.tb_next  # what called the function is of no interest
    text = "".join(traceback.format_exception(type(error), error, frames))
    return SentError.whole(error, text)


def unpacked(sent: SentError, name: str, member: Member) -> BaseException:
    """Return the error to raise on the chief: the function's own, its cause tells where."""
    where = CoordinatorError(f"function {name} failed on {member}:\n\n{sent.text.rstrip()}")
    error = sent.original()
    if error is None:
        return where
    try:
        error.__cause__ = where
    except Exception:  # noqa: BLE001 - a class that lets nothing be set; the text says it all
        return where
    return error


def broken(error: BaseException) -> CoordinatorError:
    """Return the error to raise on the chief when its own machinery has failed."""
    return CoordinatorError(
        f"the coordinator cannot go on: {type(error).__name__}: {error}; what has not finished is"
        " lost; start the job again from the last checkpoint"
    )


def worker_lost(worker: WorkerState) -> PeerLostError:
    """Return the error of a worker that has ended."""
    names = sorted({call.function.name for call in worker.sent.values()})
    doing = f" with {', '.join(names)} under way" if names else ""
    advice = "" if mpi.outlives_ranks() else _ADVICE
    return PeerLostError(
        f"{worker.member} has ended{doing}; its own output may say why{advice}",
        worker.member.rank,
    )


def no_stand_in(member: Member) -> PeerLostError:
    """Return the error of a worker that has ended and whose share of rounds no other can do."""
    return PeerLostError(
        f"{member} has ended, and no worker that is left has {member.num_replicas} replicas as it"
        " had, for its share of synchronous rounds; start the job again from the last checkpoint,"
        " or give all workers as many devices",
        member.rank,
    )


def evaluator_lost(member: Member) -> PeerLostError:
    """Return the error of an evaluator that has ended where the job ends with it."""
    return PeerLostError(
        f"{member} has ended; its own output may say why{_ADVICE}",
        member.rank,
    )


def deadly(calls: Sequence[Call]) -> CoordinatorError:
    """Return the error of functions that have ended worker after worker."""
    worst = max(calls, key=lambda call: call.losses)
    return CoordinatorError(
        f"{worst.losses} workers have ended with {worst.function.name} under way; it is taken for"
        " the reason, and no other worker gets it"
    )


def half_applied(lacking: Sequence[str]) -> CoordinatorError:
    """Return the error of a round that only some ps could apply."""
    return CoordinatorError(
        f"a round is applied in part only, since {'; '.join(lacking)}; start the job again from"
        " the last checkpoint, with more memory for the ps, or more of them"
    )


def ps_lost(member: Member) -> PeerLostError:
    """Return the error of a ps that has ended."""
    return PeerLostError(
        f"{member} has ended, and its variables with it; start the job again from the last"
        " checkpoint",
        member.rank,
    )
