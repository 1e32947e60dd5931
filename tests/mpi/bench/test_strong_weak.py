"""The cases ``strong`` and ``weak`` check what all ranks learn, time it, and write its parts."""

import json
from pathlib import Path

import pytest

from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")
pytest.importorskip("threadpoolctl")

pytestmark = takes_long()

TINY = ["--units", "16", "--layers", "2", "--steps", "4", "--rounds", "3", "--seconds", "0.01"]
QUARTILES = ["min", "q1", "median", "q3", "max"]


def arguments(case: str, *options: str) -> list[str]:
    return ["-m", "mpistrat.bench", case, *TINY, *options]


def measured(file: Path, ranks: int, case: str, *options: str) -> tuple[JobResult, dict]:
    result = run_job(arguments(case, "--json", str(file), *options), ranks, timeout_s=60).check()
    assert all(not rank.stdout for rank in result.ranks[1:])
    (one,) = (json.loads(line) for line in file.read_text().splitlines())
    assert (one["case"], one["ranks"], one["nodes"], one["correct"]) == (case, ranks, 1, True)
    return result, one


def check_parts(one: dict) -> None:
    assert one["parts_us"].keys() == {"input", "compute", "communication", "idle"}
    assert min(one["parts_us"].values()) >= 0
    assert one["parts_us"]["compute"] > 0
    assert [box["rank"] for box in one["by_rank"]] == list(range(one["ranks"]))
    for box in one["by_rank"]:
        assert box["host"]
        numbers = [box[name] for name in QUARTILES]
        assert numbers == sorted(numbers)
        assert numbers[0] > 0
    times = [one["time_us"][name] for name in ("min", "median", "p99", "max")]
    assert times == sorted(times)
    assert len(one["steps_us"]) == one["rounds"] == 3
    assert one["examples_per_s"] == pytest.approx(one["global_batch"] / times[1] * 1e6, rel=1e-4)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_fixed_global_batch(ranks: int, tmp_path: Path) -> None:
    result, one = measured(tmp_path / "figures.jsonl", ranks, "strong", "--batch", "32")
    check_parts(one)
    assert (one["global_batch"], one["rank_batch"], one["steps"]) == (32, 32 / ranks, 4)
    assert (one["family"], one["network"]) == ("arrays", "mlp-2x16")
    assert one["bytes"] == 4 * one["parameters"]
    # 4 timed steps and 2 before them, from the same weights on any number of ranks.
    assert one["loss_first"] == pytest.approx(3.2540, abs=1e-3)
    assert one["loss_last"] < one["loss_first"]
    if ranks == 1:
        assert one["parts_us"]["idle"] == 0
    said = result.ranks[0].stdout
    assert f"global batch: 32, of a rank: {32 / ranks:g}; ranks: {ranks}, nodes: 1" in said
    assert "communication" in said


def test_a_fixed_batch_of_a_rank(tmp_path: Path) -> None:
    _, one = measured(tmp_path / "figures.jsonl", 2, "weak", "--batch", "16")
    check_parts(one)
    assert (one["global_batch"], one["rank_batch"]) == (32, 16)
    assert one["loss_first"] == pytest.approx(3.2540, abs=1e-3)


WRONG = """
import sys
import mpistrat.bench.__main__ as program
from mpistrat.bench.training_loop import loop
from mpistrat.cluster.launcher.launch_variables import expected_rank

{change}
sys.argv = {argv!r}[1:]
try:
    program.main()
except SystemExit as end:
    print("exit status", end.code)
    raise
"""

OTHER_GRADIENTS = """
right = loop.loss_and_gradients
def double(*args):
    loss, gradients = right(*args)
    return loss, [2 * one for one in gradients]
loop.loss_and_gradients = double
"""

OTHER_RATE = """
if expected_rank()[1] == 1:
    loop.RATE *= 1 + 1e-6
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (OTHER_GRADIENTS, "strong: rank 0: the loss of step 2 is "),
        (OTHER_RATE, "strong: the weights of ranks [1] are not those of rank 0"),
    ],
)
def test_nothing_is_timed_if_it_is_wrong(change: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = arguments("strong", "--json", str(file))
    result = run_job(["-c", WRONG.format(change=change, argv=argv)], 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    said = result.ranks[0].stdout
    assert message in said
    assert "examples/s" not in said
    assert [rank.stdout.splitlines()[-1] for rank in result.ranks] == ["exit status 1"] * 2
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "1"], "--batch 1: a global batch for 2 ranks; expected an example a rank"),
        (
            ["--units", "65536", "--layers", "1000"],
            "GB on the machine of rank 0, 171",
        ),
    ],
)
def test_a_bad_option_is_explained_on_every_rank(options: list[str], message: str) -> None:
    result = run_job(arguments("strong", *options), 2, timeout_s=60)
    assert result.returncode != 0
    assert not result.timed_out
    for rank in result.ranks:
        said = " ".join(rank.stderr.replace("│", " ").split())
        assert message in said
        assert "Traceback" not in said
