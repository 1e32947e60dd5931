"""Measure on this rank: each check in a thread with a deadline, its errors kept as answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from mpistrat.doctor.check import Check, NotHere, Where
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.errors import CommunicationTimeoutError

__all__ = ["Answer", "exchange", "measure"]


@dataclass(frozen=True)
class Answer:
    """The facts of one rank for one check, or why there are none."""

    kind: Literal["facts", "not here", "error"]
    content: Any
    duration_s: float = 0.0


def measure(checks: Sequence[Check[Any]], here: Here, is_first: bool) -> dict[str, Answer]:
    """Return this rank's answers to the checks that measure on it. **Local.**"""
    called = {Where.EVERY_RANK: True, Where.FIRST_OF_NODE: here.is_first_of_node}
    answers = {}
    for check in checks:
        if check.measure is not None and called.get(check.where, is_first):
            answers[check.name] = _with_deadline(
                partial(check.measure, here), here.options.measure_s
            )
    return answers


def exchange(
    checks: Sequence[Check[Any]], here: Here, comm: TimedComm | None, refusal: str
) -> dict[str, Answer]:
    """Return this rank's answers to the checks that exchange messages. **Collective.**

    Parameters
    ----------
    comm
        None where there is one rank only.
    refusal
        Why no messages can be exchanged, or "".
    """
    answers: dict[str, Answer] = {}
    for check in checks:
        if check.exchange is None:
            continue
        if comm is None or refusal:
            answers[check.name] = Answer("not here", refusal or "one rank")
            continue
        answers[check.name] = _answer(partial(check.exchange, here, comm))
        if isinstance(answers[check.name].content, CommunicationTimeoutError):
            refusal = f"a rank did not answer in the check {check.title!r}"
    return {name: _sendable(answer) for name, answer in answers.items()}


def _with_deadline(call: Callable[[], object], limit_s: float) -> Answer:
    """Return the answer of a call, which is left behind in its thread if it does not end."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_answer(call)), daemon=True).start()
    try:
        return _sendable(answers.get(timeout=limit_s))
    except queue.Empty:
        return Answer("error", f"it did not end within {limit_s:g} s", limit_s)


def _answer(call: Callable[[], object]) -> Answer:
    begin = time.monotonic()
    try:
        kind, content = "facts", call()
    except NotHere as reason:
        kind, content = "not here", str(reason)
    except Exception as error:  # noqa: BLE001 - one check must not end the others
        kind, content = "error", error
    return Answer(kind, content, time.monotonic() - begin)  # type: ignore[arg-type]


def _sendable(answer: Answer) -> Answer:
    """Return an answer with the text of its exception, whose class may not be sent."""
    if answer.kind != "error" or isinstance(answer.content, str):
        return answer
    error = answer.content
    text = (
        str(error)
        if isinstance(error, CommunicationTimeoutError)
        else f"{type(error).__name__}: {error}"
    )
    return Answer("error", text, answer.duration_s)
