"""The command ``bench gpu`` checks what it times, and writes what it found; its times are not."""

import json
from pathlib import Path

import pytest

pytest.importorskip("typer")

from helpers.gpu.devices import needs_gpus
from mpistrat.bench.gpu.families import FAMILIES
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

try:
    gpu_devices.require(["GPU:0"])
except BackendUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

QUICK = ["--rounds", "2", "--seconds", "0.01", "--gpus", "1"]
FACTS = {"gpu", "gpu_driver", "cupy", "nccl", "runtime_api", "platform", "git", "mpi", "host"}
ENDS_S = 150  # kernels are compiled on their first use, on a busy machine


def records(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def bench(ranks: int, *options: str, file: Path | None = None) -> str:
    """Run the command; return what its first rank printed."""
    json_option = [] if file is None else ["--json", str(file)]
    argv = ["-m", "mpistrat.bench", "gpu", *QUICK, *options, *json_option]
    result = run_job(argv, ranks, timeout_s=ENDS_S).check()
    assert all(rank.text == "" for rank in result.ranks[1:]), result
    return result.ranks[0].stdout


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_each_family_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    sizes = ["--parts", "kernels", "--bytes", "1KiB", "--buffers", "3", "--variables", "3"]
    table = bench(1, *sizes, file=file)
    found = records(file)
    assert list(dict.fromkeys(one["op"] for one in found)) == list(FAMILIES)
    for one in found:
        assert one["correct"]
        assert one.keys() >= FACTS
        for times in (one["time_us"], one["call_us"]):
            assert 0 < times["min_us"] <= times["median_us"] <= times["max_us"]
        if one["kind"] == "mpistrat":
            assert {"copy", *_users(found, one)} == one["speedup_over"].keys()
        if one["kind"] == "bound":
            assert one["share_of_copy"] == 1
    kinds = {one["kind"] for one in found}
    assert {"mpistrat", "cupy", "bound"} <= kinds
    reduce = next(one for one in found if one["op"] == "reduce")
    assert reduce["moved_bytes"] == (3 + 1) * 1024
    _assert_judged(table, found)


def _users(found: list[dict], ours: dict) -> list[str]:
    row = (ours["op"], ours["what"])
    alike = [one for one in found if (one["op"], one["what"]) == row]
    return [one["side"] for one in alike if one["kind"] in ("cupy", "torch")]


def _assert_judged(table: str, found: list[dict]) -> None:
    """Bars are for real GPUs of NVIDIA: elsewhere times are printed, and held against nothing."""
    if "pretended" in found[0]["gpu"]:
        assert "the times mean nothing" in table
        assert not any(one["bars"] for one in found)
        assert "met" not in table
        assert "MISSED" not in table


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_a_kernel_that_does_nothing_is_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from mpistrat.bench.__main__ import main\n"
        "from mpistrat.collectives.backends.gpu.kernels import movement\n"
        "movement.cast = lambda sources, results: None\n"
        "main()\n"
    )
    options = ["--parts", "kernels", "--families", "cast", "--bytes", "1KiB"]
    result = run_job([str(program), "gpu", *QUICK, *options], 1, timeout_s=ENDS_S)
    assert result.returncode == 1
    assert "cast, float32 to float16: mpistrat is wrong" in result.ranks[0].stdout
    assert "mpistrat WRONG" in result.ranks[0].stdout


@takes_long()
@pytest.mark.deadline(2 * (ENDS_S + 20))
@pytest.mark.parametrize("ranks", [1, 2])
def test_allreduce_of_ranks_that_share_a_gpu(tmp_path: Path, ranks: int) -> None:
    file = tmp_path / "figures.jsonl"
    table = bench(ranks, "--parts", "allreduce", "--allreduce-bytes", "8,9KiB", file=file)
    found = records(file)
    sides = {one["side"] for one in found}
    assert {"auto", "peer_memory", "staged", "copy of all ranks' bytes"} <= sides
    assert {one["side"] for one in found if one["registered"]} == {"auto, registered"}
    assert ("mpi4py over the host" in sides) == (ranks > 1)
    assert ("carrier nccl: left out" in table) == (ranks > 1)
    for one in found:
        assert one["correct"]
        assert one.keys() >= FACTS
        assert (one["ranks"], one["part"]) == (ranks, "allreduce")
        assert one["share_of_bound"] > 0
    assert {one["bytes"] for one in found} == {8, 9 << 10}
    _assert_judged(table, found)


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_kernels_are_measured_by_one_rank_alone() -> None:
    argv = ["-m", "mpistrat.bench", "gpu", "--parts", "kernels"]
    result = run_job(argv, 2, timeout_s=ENDS_S)
    assert result.returncode == 2
    assert "one rank alone measures kernels" in result.output


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_more_gpus_than_there_are() -> None:
    argv = ["-m", "mpistrat.bench", "gpu", "--gpus", "99"]
    result = run_job(argv, 2, timeout_s=ENDS_S)
    assert result.returncode == 2
    seen = gpu_devices.count()
    message = f"bench gpu: --gpus 99: a rank can see {seen} GPUs; expected 1 to {seen}, or leave"
    assert result.output.count(message) == 1


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_what_does_not_fit_is_left_out() -> None:
    sizes = ["--bytes", "1TiB", "--allreduce-bytes", "1TiB", "--families", "reduce"]
    said = bench(1, *sizes)
    assert "reduce, 8 buffers, 1099511627776 bytes: left out, it takes" in said
    assert "allreduce of 1099511627776 bytes: left out, it takes" in said


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_ranks_with_a_gpu_each_are_compared_with_nccl(tmp_path: Path) -> None:
    needs_gpus(2)
    file = tmp_path / "figures.jsonl"
    options = ["--gpus", "2", "--allreduce-bytes", "9KiB"]  # the last --gpus counts
    bench(2, *options, file=file)
    found = {one["side"]: one for one in records(file)}
    assert {"auto", "nccl", "peer_memory", "staged", "nccl by cupy"} <= found.keys()
    assert all(one["correct"] for one in found.values())
    assert {one["share_of_bound"] for one in found.values()} == {None}
