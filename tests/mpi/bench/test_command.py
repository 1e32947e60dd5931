"""The benchmark command runs, checks its answers, and writes what it measured."""

import json
from pathlib import Path

import pytest

from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")

pytestmark = takes_long()

QUICK = ["--rounds", "3", "--repeats", "20", "--import-rounds", "1"]
FACTS = {"mpistrat", "git", "python", "numpy", "mpi4py", "mpi", "machine", "cores"}
STATISTICS = {"median_us", "min_us", "max_us"}


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_overhead_compares_with_mpi4py(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = ["-m", "mpistrat.bench", "overhead", *QUICK, "--json", str(file)]
    result = run_job(argv, 2, timeout_s=30).check()
    table = result.ranks[0].stdout
    assert "mpi4py Allreduce" in table
    assert 'strategy.reduce("SUM", x)' in table
    assert "over numpy" in table
    assert result.ranks[1].text == ""

    reduction, start = records(file)
    assert (reduction["case"], reduction["ranks"], reduction["bytes"]) == ("overhead", 2, 8)
    assert reduction["backend"] == ("mpi" if why_no_kernels() else "shm")
    ours = {"strategy.reduce(ReduceOp.SUM, x)", 'strategy.reduce("SUM", x)'}
    assert reduction["times"].keys() == ours | {"mpi4py Allreduce"}
    assert reduction["difference"].keys() == ours
    assert start["case"] == "import"
    assert start["packages"]["numpy, mpistrat"] == ["numpy"]
    for record in (reduction, start):
        assert record.keys() >= FACTS
        assert record["mpi4py"]
        assert record["mpi"]
        for figures in (*record["times"].values(), *record["difference"].values()):
            assert figures.keys() == STATISTICS
            assert figures["min_us"] <= figures["median_us"] <= figures["max_us"]
        assert all(figures["min_us"] > 0 for figures in record["times"].values())


def test_one_rank_has_nothing_to_compare_with(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = ["-m", "mpistrat.bench", "overhead", *QUICK, "--json", str(file)]
    result = run_job(argv, 1, timeout_s=30).check()
    assert "nothing to compare with" in result.ranks[0].stdout
    reduction, _ = records(file)
    assert "mpi4py Allreduce" not in reduction["times"]
    assert "difference" not in reduction


@pytest.mark.skipif(bool(why_no_kernels()), reason="ranks share no memory without the kernels")
def test_variables_once_a_node_and_once_a_replica(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = ["-m", "mpistrat.bench", "variables", "--sizes", "4KiB,8MiB", "--rounds", "3"]
    result = run_job([*argv, "--json", str(file)], 2, timeout_s=40).check()
    assert "step of Adam" in result.ranks[0].stdout
    assert result.ranks[1].text == ""
    found = records(file)
    assert [one["bytes"] for one in found] == [4 << 10] * 3 + [8 << 20] * 3
    for one in found:
        assert one.keys() >= FACTS
        assert one["times"].keys() == {"central", "mirrored"}
        assert one["ratio"] > 0


@pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))
def test_rows_compares_with_numpy(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    quick = ["--table-rows", "5000", "--columns", "16", "--rows", "300", "--rounds", "3"]
    argv = ["-m", "mpistrat.bench", "rows", *quick, "--json", str(file)]
    result = run_job(argv, 2, timeout_s=30).check()
    assert "x numpy add.at" in result.ranks[0].stdout
    found = records(file)
    assert [record["kind"] for record in found] == ["read", "add", "all"]
    for record in found:
        assert record.keys() >= FACTS
        assert (record["case"], record["ranks"], record["table"]) == ("rows", 2, [5000, 16])
        assert record["rows"] == (5000 if record["kind"] == "all" else 300)
        assert "shard" in record["times"]
        assert all(figures["min_us"] > 0 for figures in record["times"].values())


@pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))
def test_ps_times_rows_dense_reads_and_functions(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    quick = ["--table-rows", "5000", "--rows", "300", "--rounds", "2", "--seconds", "0.01"]
    argv = ["-m", "mpistrat.bench", "ps", "--what", "rows,dense,schedule", *quick]
    result = run_job([*argv, "--json", str(file)], 5, timeout_s=40).check()
    assert "us a function" in result.ranks[0].stdout
    assert all(not rank.stdout for rank in result.ranks[1:])
    found = records(file)
    assert [one["name"] for one in found] == ["pull", "push", "pull", "empty function"]
    for one in found:
        assert one.keys() >= FACTS
        assert (one["case"], one["ranks"], one["table"], one["rows"]) == ("ps", 5, [5000, 64], 300)
        assert all(figure > 0 for figure in one["median"].values())
    assert found[2]["median"].keys() == {"mpistrat", "mpistrat, view", "memcpy"}


def test_ps_says_what_it_does_not_know(tmp_path: Path) -> None:
    result = run_job(["-m", "mpistrat.bench", "ps", "--what", "columns"], 1, timeout_s=30)
    assert "expected a comma list of rows, dense, schedule" in " ".join(
        result.ranks[0].text.replace("│", " ").split()
    )
