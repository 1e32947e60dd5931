"""The benchmark of parameter servers checks TensorFlow's answers, and compares with it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("typer")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long


@takes_long()
@pytest.mark.deadline(120)
def test_both_sides_take_turns(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    quick = ["--table-rows", "5000", "--rows", "300", "--rounds", "2", "--seconds", "0.01"]
    argv = ["-m", "mpistrat.bench", "ps", "--what", "rows,schedule", "--peers", "tensorflow"]
    result = run_job([*argv, *quick, "--json", str(file)], 4, timeout_s=100).check()
    assert "x tensorflow" in result.ranks[0].stdout
    for one in (json.loads(line) for line in file.read_text().splitlines()):
        assert one["times"].keys() == {"mpistrat", "tensorflow"}
        assert one["ratios"]["tensorflow"] > 0
