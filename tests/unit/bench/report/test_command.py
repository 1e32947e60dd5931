"""The command as a user meets it: its files, what it prints, its exit status."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from helpers.bench.framed_text import unframed
from helpers.bench.results import collective, point, step
from mpistrat.bench.results.file import append_point
from mpistrat.testing.sets import takes_long


def one_series(ranks, seconds) -> str:
    series = [{"name": "ring", "x": ranks, "y": seconds}]
    return json.dumps({"format": "mpistrat-model-1", "title": "x", "series": series})


def results(path: Path, *points) -> Path:
    path.touch()
    for one in points:
        append_point(path, one)
    return path


@takes_long()
def test_the_summary_is_printed(made):
    lines = made.output.splitlines()
    assert lines[0] == "- 17 runs, 16 measurements; 1 run failed."
    assert any(
        "global batch 256, mpistrat: on 2 ranks 100% of the ideal from 1 rank (range" in line
        for line in lines
    )
    assert any(line.startswith("- train, 2 ranks on 1 node: failed: <script>") for line in lines)
    assert f"11 figures in {made.pngs}" in lines[-1]


@takes_long()
def test_the_same_results_give_the_same_page(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(step("shm", 9000.0)))
    pages = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        report(source, "-o", tmp_path / name / "report.html")
        pages.append((tmp_path / name / "report.html").read_bytes())
        assert (tmp_path / name / "report-png" / "overlap-resnet50-2-ranks.png").is_file(), (
            "beside the page"
        )
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, "cannot be read"),
        ((), "no results; expected lines of mpistrat bench scale"),
        ((point(collective(1.0), status="failed", message="no kernels"),), "says: no kernels"),
        ((point(collective(1.0, correct=False)),), "1 wrong answers"),
        ((point(collective(1.0, bytes="x")),), "bytes: Input should be a valid integer"),
    ],
)
def test_results_that_cannot_be_shown_are_a_message(report, tmp_path, lines, words):
    source = tmp_path / "results.jsonl"
    if lines is not None:
        results(source, *lines)
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 2
    assert words in " ".join(said.output.replace("│", " ").split())
    assert isinstance(said.exception, SystemExit), "no traceback"
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "Invalid JSON"),
        ("{}", "format: Field required"),
        (
            one_series([1], [1, 2]),
            "differ in length",
        ),
        (one_series([0], [1]), "greater than or equal to"),
        (one_series([1], [1e308]), "less than or equal to"),
        (one_series([1], [5e-324]), "greater than or equal to"),
    ],
)
def test_a_model_that_cannot_be_shown_is_a_message(report, tmp_path, content, words):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    if content is not None:
        (tmp_path / "model.json").write_text(content)
    page = tmp_path / "report.html"
    said = report(source, "-o", page, "--model", tmp_path / "model.json")
    assert said.exit_code == 2
    assert words in " ".join(said.output.replace("│", " ").split())


def test_the_results_are_never_replaced(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    before = source.read_bytes()
    said = report(source, "-o", source)
    assert said.exit_code == 2
    assert source.read_bytes() == before


@takes_long()
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_no_other_name_of_an_input_is_replaced(report, tmp_path, link):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    model = tmp_path / "model.json"
    model.write_text(one_series([1], [1]))
    before = source.read_bytes(), model.read_bytes()
    for number, one in enumerate((source, model)):
        page = tmp_path / f"{number}.html"
        link(one, page)
        said = report(source, "-o", page, "--model", model)
        assert said.exit_code == 2
        assert "is the same file as" in unframed(said.output)
    assert (source.read_bytes(), model.read_bytes()) == before


def test_a_record_without_a_time_is_left_out_and_named(report, tmp_path):
    bad = collective(1.0, time_us={"min": 1.0, "median": None, "max": 2.0})
    source = results(tmp_path / "results.jsonl", point(collective(1.0)), point(bad))
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 0, said.output
    assert "1 measurement; 1 record left out, not as the case writes it." in said.output
    assert "left out: record 1: time_us.median: Input should be a valid number" in said.output
    assert "time_us.median" in (tmp_path / "report.html").read_text(encoding="utf-8")
    compared_to = report("--compare", source, source)
    assert "record left out: old, collectives, 2 ranks" in compared_to.output


def test_results_of_two_machines_are_said_to_be_so_first(report, tmp_path):
    facts = [{"host": f"processor {one}", "mpi": "MPICH 4", "cores": 2} for one in "AB"]
    pair = [point(collective(1.0), facts=one) for one in facts]
    source = results(tmp_path / "results.jsonl", *pair)
    said = report(source, "-o", tmp_path / "report.html")
    first = said.output.splitlines()[0]
    assert first.startswith("- These results are of different machines or MPI libraries")
    assert "processor: processor A (1 point); processor B (1 point)." in first
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.index("are of different machines") < page.index("2 runs, 1 measurement")
    old, new = (results(tmp_path / one.facts["host"], *[one] * 3) for one in pair)
    changed = report("--compare", old, new)
    assert "different machines or MPI libraries: processor: processor A -> proc" in changed.output
    assert "different machines" not in report("--compare", old, old).output


def test_a_folder_that_cannot_be_written_is_a_message(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    said = report(source, "-o", source / "report.html")
    assert said.exit_code == 2
    assert "there is no folder" in unframed(said.output)


def test_no_folder_is_made_for_the_page(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    for page, words in ((tmp_path / "no" / "r.html", "make it first"), (tmp_path, "a folder;")):
        said = report(source, "-o", page)
        assert said.exit_code == 2
        assert words in unframed(said.output)
    assert not (tmp_path / "no").exists()


def test_a_file_that_is_named_twice_counts_once(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    report(source, source, "-o", tmp_path / "report.html")
    assert "1 run on 2 ranks" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_line_that_is_no_result_is_named(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    source.write_text("notes of mine\n" + source.read_text())
    said = report(source, "-o", tmp_path / "report.html")
    assert said.exit_code == 2
    assert "results.jsonl:1: 'notes of mine' is no result" in unframed(said.output)


def test_without_files_it_says_what_it_takes(report):
    said = report()
    assert said.exit_code == 2
    assert "no result files; expected such as" in unframed(said.output)


def test_without_matplotlib_it_names_the_extra(report, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    said = report(results(tmp_path / "a", point(collective(1.0))))
    assert said.exit_code == 2
    assert 'pip install "mpistrat[bench]"' in said.output


def compared(path: Path, small_us: float, large_us: float, repeats: int = 3) -> Path:
    """Write times of 8 and of 16 bytes."""
    both = point(collective(small_us)), point(collective(large_us, nbytes=16))
    return results(path, *both * repeats)


def test_a_comparison_exits_with_1_for_a_regression(report, tmp_path):
    old, new = compared(tmp_path / "old", 100.0, 100.0), compared(tmp_path / "new", 150.0, 50.0)
    said = report("--compare", old, new)
    assert said.exit_code == 1
    assert "collectives allreduce float32 8 B, shm, 2 ranks on 1 node" in said.output
    assert "1.50×" in said.output
    assert "REGRESSION: 1 slower, 1 faster, 0 within noise or 5 %" in said.output
    back = report("--compare", old, old)
    assert back.exit_code == 0
    assert "no regression: 0 slower, 0 faster, 2 within noise or 5 %" in back.output
    assert report("--compare", old, new, "--threshold", 60).exit_code == 0


def test_a_comparison_that_judges_nothing_says_how_to_measure(report, tmp_path):
    old = compared(tmp_path / "old", 100.0, 100.0, 2)
    new = compared(tmp_path / "new", 150.0, 50.0, 2)
    said = report("--compare", old, new)
    assert said.exit_code == 2
    assert "2 measurements have too few repeats to judge; run both with --repeats 3" in said.output
    assert "NOT JUDGED: 0 slower" in said.output
    assert "no measurement has at least 3 repeats in both" in unframed(said.output)


def test_a_comparison_of_nothing_in_common_is_a_message(report, tmp_path):
    old = results(tmp_path / "old", point(collective(100.0)))
    new = results(tmp_path / "new", point(collective(100.0), ranks=4))
    said = report("--compare", old, new)
    assert said.exit_code == 2
    assert "have no measurement of mpistrat in common" in unframed(said.output)
    both = report("--compare", old, new, old)
    assert both.exit_code == 2
    assert "takes two files" in unframed(both.output)
