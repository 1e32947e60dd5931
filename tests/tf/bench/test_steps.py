"""The case that times steps of fit runs on 2 ranks, and writes both of its sides."""

import json
from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("tensorflow")
pytest.importorskip("typer")


@takes_long()
@pytest.mark.deadline(140)  # the first user compiles the native operations
def test_steps_with_and_without_comparison(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    quick = ["--network", "mlp", "--rounds", "1", "--steps", "5", "--json", str(file)]
    result = run_job(["-m", "mpistrat.bench", "steps", *quick], 2, timeout_s=120).check()
    assert "mlp, 2 ranks, data compared" in result.ranks[0].stdout
    (record,) = (json.loads(line) for line in file.read_text().splitlines())
    assert (record["case"], record["network"], record["ranks"]) == ("steps", "mlp", 2)
    assert record["ms"].keys() == {"data compared", "not compared"}
    assert min(record["ms"].values()) > 0
    compared, not_compared = record["ms"].values()
    # Of one turn, whose ratio is that of both figures, however noisy the machine is.
    assert record["ratio"] == pytest.approx(compared / not_compared, rel=1e-3)
