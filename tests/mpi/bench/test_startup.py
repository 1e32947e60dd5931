"""The case ``startup`` reports the start of its own job, and what its ranks hold."""

import json
from pathlib import Path

import pytest

from helpers.pretend.nodes import pretended_nodes
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytest.importorskip("typer")

pytestmark = takes_long()

PARTS = ["spawn", "imports", "mpi", "communicator", "first_call"]


def measured(folder: Path, ranks: int, *options: str, timeout_s: float = 60) -> dict:
    file = folder / "figures.jsonl"
    arguments = ["-m", "mpistrat.bench", "startup", "--json", str(file), *options]
    result = run_job(arguments, ranks, timeout_s).check()
    assert f"start of {ranks} ranks on " in result.ranks[0].stdout
    assert all(not rank.stdout for rank in result.ranks[1:])
    (line,) = file.read_text().splitlines()
    found: dict = json.loads(line)
    assert (found["case"], found["ranks"], found["correct"]) == ("startup", ranks, True)
    assert 0 < found["time_us"]["max"] < result.duration_s * 1e6 + 1e5
    return found


def test_the_parts_of_a_start_are_its_whole(tmp_path: Path) -> None:
    found = measured(tmp_path, 1)
    parts, time_us = found["parts_us"], found["time_us"]
    assert list(parts) == PARTS
    assert sum(part["max"] for part in parts.values()) == pytest.approx(time_us["max"], abs=1)
    assert parts["spawn"]["max"] == 0
    for name in ("imports", "mpi"):
        assert parts[name]["max"] > 1000
    assert time_us["min"] <= time_us["median"] <= time_us["p99"] <= time_us["max"]


def test_what_ranks_of_a_node_hold(tmp_path: Path) -> None:
    found = measured(tmp_path, 3)
    assert found["nodes"] == 1
    assert found["pss_bytes"]["max"] > 10e6
    assert 0 <= found["own_shared_bytes"] <= found["shared_bytes"]
    assert found["fds"]["max"] > found["sockets"]["max"] + found["pidfds"]["max"]
    if not why_no_kernels():
        assert found["own_shared_bytes"] > 0
        assert found["pidfds"] == {"median": 2, "max": 2}


def test_ranks_of_several_nodes_watch_those_of_their_own(tmp_path: Path) -> None:
    with pretended_nodes(2):
        found = measured(tmp_path, 4, "--backend", "auto")
    assert found["nodes"] == 2
    if not why_no_kernels():
        assert found["pidfds"]["max"] == 1


def test_an_unknown_backend_is_explained() -> None:
    arguments = ["-m", "mpistrat.bench", "startup", "--backend", "pigeons"]
    result = run_job(arguments, 1, timeout_s=60)
    assert result.returncode != 0
    assert "pigeons" in result.ranks[0].stderr


@repeats()
def test_64_ranks_on_one_machine(tmp_path: Path) -> None:
    found = measured(tmp_path, 64, timeout_s=300)
    assert found["pss_bytes"]["max"] < 200e6
    assert found["shared_bytes"] < 2e9
