"""Without a network nothing is projected, and the file and the terminal say why."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("pydantic")

import typer
from typer.testing import CliRunner

from mpistrat.bench.cost_model.build import Assumptions, model_of
from mpistrat.bench.cost_model.command import command
from mpistrat.bench.cost_model.model_file import as_json
from mpistrat.bench.report.projection_file import read_projection
from mpistrat.bench.results.file import append_point, read_points
from mpistrat.bench.results.point import Point, Setup
from mpistrat.testing.sets import takes_long

FILE = Path(__file__).parent / "data" / "four_hosts.jsonl"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """Return a file of the measurements of one node."""
    file = tmp_path / "laptop.jsonl"
    lines = FILE.read_text().splitlines(keepends=True)
    file.write_text("".join(one for one in lines if '"nodes":1' in one))
    return file


def servers(ranks: int) -> Point:
    record = {
        "kind": "rows",
        "name": "pull",
        "ranks": ranks,
        "num_ps": 1,
        "times": {"mpistrat": {"median_us": 5e3}},
    }
    return Point(setup=Setup(case="ps", ranks=ranks, nodes=1), records=(record,))


def run(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return result.output


@takes_long()
def test_one_node_has_no_series_and_the_report_reads_the_file(
    laptop: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    out = run(str(laptop), "--validate", str(FILE), "-o", str(file))
    assert "No projection to more ranks: no network was measured or assumed (--network)." in out
    assert "node: a byte copied" in out
    for absent in ("* extrapolation", "parameter servers", "weak scaling", "step:"):
        assert absent not in out

    read = read_projection(file)
    assert read.series == ()
    assert len(read.validation) > 10
    (asked,) = [one for one in read.statements if "the network was not measured" in one]
    assert asked.endswith("--json more.jsonl")
    assert "projected step" not in read.title


@takes_long()
def test_an_assumed_network_is_projected_and_its_step_is_in_the_title(
    laptop: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    out = run(str(laptop), "--network", "2us,12.5GB/s", "-o", str(file))
    assert "No projection" not in out
    network = [one for one in out.splitlines() if one.startswith("network: ")]
    assert len(network) == 3
    assert "made no difference" not in "".join(network)
    assert "\nprojected step: assumed: ResNet-50's gradients, 100 ms; 2 ranks a node" in out
    assert len(read_projection(file).series) > 10
    assert read_projection(file).title.endswith("; step assumed: ResNet-50's gradients, 100 ms")


@takes_long()
def test_parameter_servers_are_projected_only_if_they_were_measured(tmp_path: Path) -> None:
    points = read_points([FILE])
    without = json.dumps(as_json(model_of(points)))
    assert "server" not in without
    written = as_json(model_of([*points, servers(4)]))
    names = [one["name"] for one in written["series"]]
    subject = "step with parameter servers (assumed ResNet-50's gradients, 100 ms)"
    assert f"{subject}: 1 server for 8 workers" in names
    assert any("one parameter server saturates" in one for one in written["statements"])

    failed = servers(4).model_copy(update={"status": "failed"})
    assert "server" not in json.dumps(as_json(model_of([*points, failed])))

    file = tmp_path / "ps.jsonl"
    append_point(file, servers(4))
    assert "\n1 server for 8 workers" in run(str(FILE), str(file))
    assert "1 server" not in run(str(FILE))


@takes_long()
def test_what_does_not_happen_is_a_list_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    out = run(str(FILE), "--network", "0.001us,1MB/s", "-o", str(file))
    _, _, listed = out.partition("\nDoes not happen up to 100,000 ranks:\n")
    assert "latency term exceeds the bandwidth term" in listed
    assert "What breaks first" not in listed
    said = read_projection(file).statements
    never = [one for one in said if one.startswith("Does not happen up to 100,000 ranks: ")]
    assert never
    assert said[-len(never) :] == tuple(never)
    assert not any("not up to" in one for one in said)


@takes_long()
def test_few_rank_counts_have_no_error(tmp_path: Path) -> None:
    file = tmp_path / "io.jsonl"
    record = {"op": "save", "bytes": 8 << 20, "time_us": {"median": 1e6}}
    append_point(file, Point(setup=Setup(case="io", ranks=2, nodes=1), records=(record,)))
    out = " ".join(run(str(FILE), str(file)).split())
    assert "checkpoint save of 8 MiB 1 no error: fewer than 4 rank counts measured" in out


def test_options_are_assumptions() -> None:
    assert Assumptions().merge == "median"
