"""Judge the answers of all ranks; a check that fails itself has a result, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpistrat.doctor.check import Check, NotHere, Problem, Result, Status, Verdict
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.measuring import Answer

__all__ = ["judge", "worst"]

_ORDER = (Status.FAILURE, Status.WARNING, Status.OK, Status.NOT_HERE)
_MOST_ERRORS = 3


def judge(
    checks: Sequence[Check[Any]], answers: Mapping[int, Mapping[str, Answer]], job: Job
) -> tuple[list[Result], dict[str, Any]]:
    """Return the result of each check, and the corrections of the site's file.

    Parameters
    ----------
    answers
        What each rank has answered, by rank and by the name of the check.
    """
    results: list[Result] = []
    corrections: dict[str, Any] = {}
    for check in checks:
        own = {rank: given[check.name] for rank, given in answers.items() if check.name in given}
        verdict = _verdict(check, own, job)
        results.append(_result(check, verdict, own))
        if isinstance(verdict, Verdict):
            corrections.update(verdict.corrections or {})
    return results, corrections


def worst(results: Sequence[Result]) -> Status:
    """Return the worst status among the results."""
    found = {result.status for result in results}
    return next((status for status in _ORDER if status in found), Status.OK)


def _verdict(check: Check[Any], answers: Mapping[int, Answer], job: Job) -> Verdict | str:
    """Return the verdict, or the reason why the check is not here."""
    facts = {rank: a.content for rank, a in answers.items() if a.kind == "facts"}
    errors = {rank: str(a.content) for rank, a in answers.items() if a.kind == "error"}
    reasons = [str(a.content) for a in answers.values() if a.kind == "not here"]
    own_failures = _own_failures(errors, job)
    if not facts:
        if own_failures:
            return Verdict("could not be made", problems=own_failures)
        return reasons[0] if reasons else "no rank has measured it"
    try:
        verdict = check.judge(facts, job)
    except NotHere as reason:
        return Verdict(str(reason), problems=own_failures) if own_failures else str(reason)
    except Exception as error:  # noqa: BLE001 - a check's mistake is a line of the report
        text = f"its judgement raised {type(error).__name__}: {error}"
        return Verdict("could not be made", problems=(_own_failure(text), *own_failures))
    return Verdict(
        verdict.value,
        verdict.expected,
        (*verdict.problems, *own_failures),
        verdict.corrections,
    )


def _own_failures(errors: Mapping[int, str], job: Job) -> tuple[Problem, ...]:
    return tuple(
        _own_failure(f"for {job.who(ranks)}: {text}")
        for text, ranks in list(by_value(errors).items())[:_MOST_ERRORS]
    )


def _own_failure(text: str) -> Problem:
    return Problem(
        Status.FAILURE,
        f"the check itself failed {text}"
        if text.startswith("for ")
        else f"the check itself: {text}",
        "it ends with a verdict",
        "look at that node; if it is well, report this line as a bug of mpistrat",
    )


def _result(check: Check[Any], verdict: Verdict | str, answers: Mapping[int, Answer]) -> Result:
    duration_s = max((answer.duration_s for answer in answers.values()), default=0.0)
    common = (check.name, check.title, check.source)
    if isinstance(verdict, str):
        return Result(*common, Status.NOT_HERE, verdict, duration_s=duration_s)
    problems = sorted(verdict.problems, key=lambda problem: _ORDER.index(problem.status))
    status = problems[0].status if problems else Status.OK
    return Result(*common, status, verdict.value, verdict.expected, tuple(problems), duration_s)
