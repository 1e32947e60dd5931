"""The case ``train`` trains a network of arrays; tests/tf/bench has that of Keras."""

import json
from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")
pytest.importorskip("threadpoolctl")

QUICK = ["--steps", "5", "--rounds", "2", "--seconds", "0.01"]


@takes_long()
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_arrays(ranks: int, tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    argv = ["-m", "mpistrat.bench", "train", *QUICK, "--json", str(file)]
    said = run_job(argv, ranks, timeout_s=60).check().ranks[0].stdout
    assert "train: mlp-2x256 (arrays)" in said
    (one,) = (json.loads(line) for line in file.read_text().splitlines())
    assert (one["case"], one["family"], one["ranks"], one["rounds"]) == (
        *("train", "arrays", ranks, 2),
    )
    assert len(one["by_rank"]) == ranks
    # Learnt from the same batches whatever the number of ranks: to the first digits.
    assert one["loss_first"] == pytest.approx(3.0565, abs=1e-3)
    assert one["loss_last"] < one["loss_first"] / 2


@takes_long()
def test_an_unknown_family_is_explained() -> None:
    result = run_job(["-m", "mpistrat.bench", "train", "--family", "torch"], 1, timeout_s=60)
    assert result.returncode != 0
    assert "'arrays', 'keras'" in " ".join(result.ranks[0].stderr.replace("│", " ").split())
