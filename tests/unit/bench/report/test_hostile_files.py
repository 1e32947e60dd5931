"""No file makes a traceback: what is wrong is left out and named, or the message says where."""

import json

import pytest

pytest.importorskip("pydantic")

from helpers.bench.framed_text import unframed
from helpers.bench.results import every_kind, point, servers
from mpistrat.testing.sets import takes_long

_TIMES = ("time_us", "times", "steps_us", "compute_us", "parts_us", "by_rank", "by_op")


def changed(value, number, word, is_time=False):
    """Return a record whose times are `number`, and with `word` at the end of its words."""
    if isinstance(value, dict):
        return {
            key: changed(one, number, word, is_time or key in _TIMES) for key, one in value.items()
        }
    if isinstance(value, list):
        return [changed(one, number, word, is_time) for one in value]
    if isinstance(value, str):
        return value + word
    return number if is_time and isinstance(value, float) else value


def written(path, number, word=""):
    """Write a result of every kind, changed, and one that is fine."""
    lines = [json.loads(one.model_dump_json()) for one in every_kind()]
    for line in lines:
        line["records"] = [
            {**changed(one, number, word), "case": one["case"]} for one in line["records"]
        ]
    fine = every_kind()[0].model_dump_json()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + fine + "\n")
    return path


@takes_long()
@pytest.mark.parametrize("number", [0.0, 5e-324, 1e15, 1e308, float("nan"), None])
def test_times_of_any_size_make_a_page_and_a_comparison(report, tmp_path, number):
    source = written(tmp_path / "results.jsonl", number)
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 0, said.exception
    compared = report("--compare", source, source)
    assert isinstance(compared.exception, SystemExit)
    assert "too few repeats to judge" in compared.output


@takes_long()
def test_half_of_a_character_makes_a_page(report, tmp_path):
    source = written(tmp_path / "results.jsonl", 1.0, "\ud800")
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 0, said.exception
    assert "\ud800" not in said.output


@takes_long()
@pytest.mark.parametrize(
    "changes",
    [
        {"ratios": 5},
        {"ratios": ["tensorflow"]},
        {"ratios": {"tensorflow": None, "ghost": "x", "other": float("nan")}},
        {"speedup": {"other": 3}, "ratios": {"ghost": 2}},
        {"speedup": "fast"},
        {"times": {"mpistrat, view": {"median_us": 1.0, "min_us": 1.0, "max_us": 1.0}}},
    ],
)
def test_ratios_of_any_kind_make_a_page(report, tmp_path, changes):
    source = tmp_path / "results.jsonl"
    line = point({**servers(50.0), **changes}, 4).model_dump_json()
    source.write_text(f"{line}\n{every_kind()[0].model_dump_json()}\n")
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 0, said.exception


@pytest.mark.parametrize("content", ['{"format":' + "[" * 200_000, '{"case": ' + "9" * 5000 + "}"])
def test_lines_that_json_cannot_hold_are_named(report, tmp_path, content):
    source = tmp_path / "results.jsonl"
    source.write_text(content)
    for arguments in ((source, "-o", tmp_path / "a.html"), ("--compare", source, source)):
        said = report(*arguments)
        assert said.exit_code == 2
        assert "results.jsonl:1:" in unframed(said.output).replace(" ", "")
