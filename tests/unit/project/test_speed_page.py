"""The figures of docs/speed.md and README.md are those of the recorded JSON lines."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UPDATE = ROOT / "docs" / "speed" / "update.py"
RECORDINGS = sorted(UPDATE.parent.glob("*.jsonl"))
PAGES = ("README.md", "docs/speed.md")


def update(*arguments):
    command = [sys.executable, UPDATE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def copy(tmp_path):
    """Return a folder with the pages and the recordings."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_pages_have_the_recorded_figures():
    done = update("--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.name)
def test_a_recording_says_what_was_measured_and_where(file):
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert {record["kind"] for record in records} == {"backend", "peer"}
    for record in records:
        assert re.fullmatch("[0-9a-f]{40}", record["git"])  # no "-dirty"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
        assert record["correct"]
        assert record["host"]


def test_two_libraries_are_recorded_on_two_and_four_ranks():
    assert [file.stem for file in RECORDINGS] == ["mpich-2", "mpich-4", "openmpi-2", "openmpi-4"]


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.name)
def test_another_recording_is_noticed_and_written(file, copy):
    recording = copy / file.relative_to(ROOT)
    first, *rest = recording.read_text().splitlines()
    record = json.loads(first)
    record["time_us"]["median"] = 87.4321
    recording.write_text("\n".join([json.dumps(record), *rest]) + "\n")

    done = update("--check", "--root", str(copy))
    assert done.returncode == 1
    assert "docs/speed.md differs" in done.stdout
    assert update("--root", str(copy)).returncode == 0
    assert "| 87 µs, " in (copy / "docs" / "speed.md").read_text()
    assert update("--check", "--root", str(copy)).returncode == 0


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_that_was_typed_is_noticed(page, copy):
    text = (copy / page).read_text()
    begin = text.index("<!-- recorded")
    figure = re.compile(r"\d+(?:\.\d+)? µs").search(text, begin)
    (copy / page).write_text(f"{text[: figure.start()]}0.01 µs{text[figure.end() :]}")
    done = update("--check", "--root", str(copy))
    assert (done.returncode, done.stdout.count("differs")) == (1, 1)


def test_a_page_without_the_marks_is_named(copy):
    (copy / "README.md").write_text("# mpistrat\n")
    done = update("--check", "--root", str(copy))
    assert done.returncode == 1
    assert "README.md: expected the lines" in done.stderr
