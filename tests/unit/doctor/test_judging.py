"""A check that fails itself is a line of the report, and hides no other check."""

import pytest

from helpers.doctor.jobs import job
from mpistrat.doctor.check import Check, Status, Verdict, Where, failure, warning
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.here import Here, Options
from mpistrat.doctor.judging import judge
from mpistrat.doctor.measuring import Answer, exchange, measure
from mpistrat.doctor.not_here import NotHere

HERE = Here({})


def check(name="area.one", judge=lambda facts, job: Verdict("well"), **more):
    return Check(name, "a title", "a source", judge, **more)


def results_of(of, *answers):
    by_rank = {rank: {of.name: answer} for rank, answer in enumerate(answers)}
    return judge([of], by_rank, job(["n0"] * max(1, len(answers))))[0][0]


def test_a_measurement_that_raises_is_a_failure():
    def measured(_):
        raise ValueError("no such thing")

    broken, well = check(measure=measured), check("area.two", measure=lambda _: 1)
    answers = measure([broken, well], HERE, is_first=True)
    results, _ = judge([broken, well], {0: answers}, job(["n0"]))
    assert [result.status for result in results] == [Status.FAILURE, Status.OK]
    assert "ValueError: no such thing" in results[0].problems[0].got


def test_a_measurement_that_never_ends_is_a_failure(monkeypatch):
    import threading

    monkeypatch.setattr(Options, "measure_s", 0.1)
    never = threading.Event()
    try:
        answers = measure([check(measure=lambda _: never.wait())], HERE, is_first=True)
    finally:
        never.set()
    assert answers["area.one"].content == "it did not end within 0.1 s"


def test_a_judgement_that_raises_is_a_failure():
    def judged(facts, job):
        raise KeyError("x")

    result = results_of(check(judge=judged), Answer("facts", 1))
    assert result.status is Status.FAILURE
    assert "KeyError" in result.problems[0].got


def test_the_reason_why_a_check_is_not_here():
    def judged(facts, job):
        raise NotHere("no GPU")

    assert results_of(check(), Answer("not here", "one rank")).value == "one rank"
    result = results_of(check(judge=judged), Answer("facts", 1))
    assert (result.status, result.value) == (Status.NOT_HERE, "no GPU")


def test_one_rank_that_fails_is_named_beside_the_verdict_on_the_others():
    answers = [Answer("facts", 1), Answer("error", "OSError: gone"), Answer("facts", 1)]
    result = results_of(check(), *answers)
    assert (result.status, result.value) == (Status.FAILURE, "well")
    assert "rank 1 on n0: OSError: gone" in result.problems[0].got


def test_the_worst_problem_comes_first():
    def judged(facts, job):
        return Verdict("bad", problems=(warning("w", "", "do w"), failure("f", "", "do f")))

    result = results_of(check(judge=judged), Answer("facts", 1))
    assert result.status is Status.FAILURE
    assert [problem.got for problem in result.problems] == ["f", "w"]
    assert result.fix == "do f; do w"


@pytest.mark.parametrize(
    ("where", "is_first", "is_first_of_node", "measures"),
    [
        (Where.EVERY_RANK, False, False, True),
        (Where.FIRST_OF_NODE, False, True, True),
        (Where.FIRST_OF_NODE, False, False, False),
        (Where.FIRST_RANK, False, True, False),
        (Where.FIRST_RANK, True, True, True),
    ],
)
def test_where_checks_measure(where, is_first, is_first_of_node, measures):
    here = Here({}, is_first_of_node=is_first_of_node)
    answers = measure([check(measure=lambda _: 1, where=where)], here, is_first)
    assert bool(answers) is measures


def test_messages_are_not_exchanged_without_other_ranks():
    of = check(exchange=lambda here, comm: 1)
    assert exchange([of], HERE, None, "one rank")["area.one"].content == "one rank"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([Status.OK, Status.NOT_HERE], 0),
        ([Status.NOT_HERE], 0),
        ([Status.OK, Status.WARNING], 1),
        ([Status.WARNING, Status.FAILURE, Status.OK], 2),
    ],
)
def test_exit_codes(statuses, code):
    problems = {Status.WARNING: warning("w", "", ""), Status.FAILURE: failure("f", "", "")}
    results = []
    for status in statuses:
        kind = "not here" if status is Status.NOT_HERE else "facts"
        found = tuple(problems[status] for _ in [0] if status in problems)
        of = check(judge=lambda facts, job, found=found: Verdict("", problems=found))
        results.append(results_of(of, Answer(kind, "")))
    assert [result.status for result in results] == statuses
    assert Examination(job(), results).exit_code == code
