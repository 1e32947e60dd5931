"""The command as a user meets it: its files, what it prints, its exit status."""

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from helpers.bench_results import collective, point, step
from helpers.framed_text import unframed
from mpistrat.bench.results.file import append_point


def one_series(ranks, seconds) -> str:
    series = [{"name": "ring", "x": ranks, "y": seconds}]
    return json.dumps({"format": "mpistrat-model-1", "title": "x", "series": series})


def results(path: Path, *points) -> Path:
    path.touch()
    for one in points:
        append_point(path, one)
    return path


def test_the_summary_is_printed(made):
    lines = made.output.splitlines()
    assert lines[0] == "- 17 runs, 16 measurements; 1 run failed."
    assert any(
        "global batch 256, mpistrat: on 2 ranks 100% of the ideal from 1 rank (range" in line
        for line in lines
    )
    assert any(line.startswith("- train, 2 ranks on 1 node: failed: <script>") for line in lines)
    assert f"11 figures in {made.pngs}" in lines[-1]


def test_the_same_results_give_the_same_page(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(step("shm", 9000.0)))
    pages = []
    for name in ("a", "b"):
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
        (one_series([0], [1]), "greater than 0"),
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


def test_a_folder_that_cannot_be_written_is_a_message(report, tmp_path):
    source = results(tmp_path / "results.jsonl", point(collective(1.0)))
    said = report(source, "-o", source / "report.html")
    assert said.exit_code == 2
    assert "cannot be written" in unframed(said.output)


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


def test_a_comparison_exits_with_1_for_a_regression(report, tmp_path):
    old = results(tmp_path / "old", point(collective(100.0)), point(collective(100.0, nbytes=16)))
    new = results(tmp_path / "new", point(collective(150.0)), point(collective(50.0, nbytes=16)))
    said = report("--compare", old, new)
    assert said.exit_code == 1
    assert "collectives allreduce float32 8 B, shm, 2 ranks on 1 node" in said.output
    assert "1.50×" in said.output
    assert "REGRESSION: 1 slower, 1 faster, 0 within noise or 5 %" in said.output
    back = report("--compare", old, old)
    assert back.exit_code == 0
    assert "no regression: 0 slower, 0 faster, 2 within noise or 5 %" in back.output
    assert report("--compare", old, new, "--threshold", 60).exit_code == 0


def test_a_comparison_of_nothing_in_common_is_a_message(report, tmp_path):
    old = results(tmp_path / "old", point(collective(100.0)))
    new = results(tmp_path / "new", point(collective(100.0), ranks=4))
    said = report("--compare", old, new)
    assert said.exit_code == 2
    assert "have no measurement in common" in unframed(said.output)
    both = report("--compare", old, new, old)
    assert both.exit_code == 2
    assert "takes two files" in unframed(both.output)
