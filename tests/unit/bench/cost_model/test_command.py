"""The command prints a model, writes it for the report, and says what is missing."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pydantic")

import typer
from typer.testing import CliRunner, Result

from mpistrat.bench.cost_model.command import command
from mpistrat.bench.results.file import append_point
from mpistrat.bench.results.point import Point, Setup
from mpistrat.testing.sets import takes_long

FILE = str(Path(__file__).parent / "data" / "four_hosts.jsonl")


def run(*arguments: str, fails: bool = False) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    assert (result.exit_code != 0) == fails, result.output
    return result


def message(result: Result) -> str:
    """Return an error without the frame and the line breaks that typer gives it."""
    words = (result.output + result.stderr).replace("│", " ").split()
    return " ".join(words)


@takes_long()
def test_a_model_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    result = run(FILE, "--merge", "least", "--hold-out", "nodes=4", "-o", str(file))
    out = result.output
    assert "network: a byte through a node's link (G)" in out
    assert "ten-fold cross-validation" in out
    assert "100,000*" in out
    assert "4,096*" in out
    assert "What breaks first: " in out
    assert "\ncheck that all ranks call the same" in out
    for name in ("ring", "recursive doubling", "Rabenseifner", "binomial tree"):
        assert f"\n{name}" in out

    model = json.loads(file.read_text())
    assert model.keys() == {"format", "title", "statements", "series", "validation"}
    assert model["format"] == "mpistrat-model-1"
    assert model["statements"][0].startswith("What breaks first: ")
    for one in model["series"]:
        assert one.keys() == {"name", "x", "y", "low", "high", "measured"}
        assert len(one["x"]) == len(one["y"]) == len(one["low"]) == len(one["high"]) > 0
        for low, value, high in zip(one["low"], one["y"], one["high"], strict=True):
            assert low <= value <= high
    names = [one["name"] for one in model["series"]]
    assert len(set(names)) == len(names)
    step = "step (assumed ResNet-50's gradients, 100 ms)"
    near = model["series"][names.index(f"{step}: weak scaling")]
    far = model["series"][names.index(f"{step}: weak scaling (extrapolation)")]
    # Four ranks were fitted: beyond 16 it is extrapolation, which begins where the other ends.
    assert near["x"] == [1, 2, 4, 8, 16]
    assert (far["x"][0], far["x"][-1]) == (16, 100_000)
    measured = model["series"][
        names.index("all-reduce of 4 MiB: as the library chooses (measured)")
    ]
    assert measured["measured"]
    assert measured["x"] == [2, 4, 8]
    assert measured["y"][1:] == pytest.approx([0.185, 0.28], rel=0.05)
    assert len(model["validation"]) == 86
    one = model["validation"][0]
    assert one["error"] == pytest.approx(one["predicted"] / one["measured"] - 1)


@takes_long()
def test_another_file_is_predicted(tmp_path: Path) -> None:
    lines = Path(FILE).read_text().splitlines(keepends=True)
    fitted, other = tmp_path / "fitted.jsonl", tmp_path / "other.jsonl"
    fitted.write_text("".join(one for one in lines if '"nodes":4' not in one))
    other.write_text("".join(one for one in lines if '"ranks":8,"nodes":4' in one))
    out = run(str(fitted), "--validate", str(other), "--merge", "least").output
    assert "allreduce of 4194304 B, 8 ranks on 4 nodes" in out
    assert "4 ranks on 4 nodes" not in out
    assert "of 43 within 15%" in out


@takes_long()
def test_one_node_is_projected_only_if_a_network_is_assumed(tmp_path: Path) -> None:
    file = tmp_path / "laptop.jsonl"
    lines = Path(FILE).read_text().splitlines(keepends=True)
    file.write_text("".join(one for one in lines if '"ranks":2,"nodes":1' in one))
    out = run(str(file)).output
    assert "the network was not measured; measure it by: mpirun -n 2 --host" in out
    assert "100,000" not in out
    assert "network: a byte" not in out
    assert "100,000*" in run(str(file), "--network", "2us,12.5GB/s").output
    failed = run(str(file), "--network", "fast", fails=True)
    assert "--network 'fast': expected such as '2us,12.5GB/s'" in message(failed)


def test_what_cannot_be_fitted_is_said(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    setup = Setup(case="collectives", ranks=2, nodes=1)
    append_point(file, Point(setup=setup, status="failed", message="no kernels here"))
    said = message(run(str(file), fails=True))
    assert "no time of a collective in these files" in said
    assert "mpirun -n 2 mpistrat bench collectives --ops all" in said

    said = message(run(FILE, "--hold-out", "ranks=9", fails=True))
    assert "--hold-out ranks=9: no point has that; expected" in said
    said = message(run(FILE, "--hold-out", "hosts=4", fails=True))
    assert "expected such as ranks=4,nodes=4" in said
    assert "expected median or least" in message(run(FILE, "--merge", "mean", fails=True))


@takes_long()
def test_failed_points_are_named_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    setup = Setup(case="collectives", ranks=8, nodes=8)
    append_point(file, Point(setup=setup, status="timeout", message="host h8 does not answer"))
    out = run(FILE, str(file), "--merge", "least").output
    assert "left out: collectives, 8 ranks on 8 nodes: timeout: host h8 does not answer" in out
