"""The case ``train`` compares fit of Keras on all ranks with one process, and times its steps."""

import json
from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("tensorflow")
pytest.importorskip("typer")
pytest.importorskip("threadpoolctl")

QUICK = ["--batch", "32", "--steps", "4", "--rounds", "2", "--seconds", "0.01"]
KERAS = ["-m", "mpistrat.bench", "train", "--family", "keras", *QUICK]


@takes_long()
@pytest.mark.deadline(140)  # the first user compiles the native operations
def test_keras(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    result = run_job([*KERAS, "--json", str(file)], 2, timeout_s=120).check()
    assert "train: keras-cnn (keras)" in result.ranks[0].stdout
    (one,) = (json.loads(line) for line in file.read_text().splitlines())
    assert (one["family"], one["ranks"], one["rounds"], one["steps"]) == ("keras", 2, 2, 4)
    assert (one["global_batch"], one["rank_batch"]) == (32, 16)
    assert one["time_us"]["min"] > 0
    assert one["loss_last"] < one["loss_first"]
    assert (one["parts_us"], one["by_rank"]) == (None, None)


WRONG = """
import sys
import mpistrat.bench.__main__ as program
from mpistrat.bench.training_loop import keras_fit

make = keras_fit.KerasFit.__init__

def make_other(self, batch, scope=None):
    if scope is None:  # what one process learns, for comparison
        keras_fit._RATE *= 1.1
    make(self, batch, scope)

keras_fit.KerasFit.__init__ = make_other
sys.argv = {argv!r}[1:]
program.main()
"""


@takes_long()
@pytest.mark.deadline(140)
def test_another_loss_is_found(tmp_path: Path) -> None:
    file = tmp_path / "figures.jsonl"
    program = WRONG.format(argv=[*KERAS, "--json", str(file)])
    result = run_job(["-c", program], 2, timeout_s=120)
    assert result.returncode == 1
    assert not result.timed_out
    assert "train: rank 0: the loss of step 2 is " in result.ranks[0].stdout
    assert not file.exists()
