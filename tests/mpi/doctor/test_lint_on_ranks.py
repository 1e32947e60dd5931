"""``mpistrat doctor --lint`` under mpirun: rank 0 reports before any rank ends the job."""

from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job

pytest.importorskip("typer")
pytest.importorskip("rich")

BAD = "import horovod.tensorflow.keras as hvd\nhvd.init()\nhvd.DistributedOptimizer(sgd)\n"
COMMAND = ["-m", "mpistrat", "doctor"]


def test_rank_0_tells_what_was_found(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BAD)
    result = run_job([*COMMAND, "--lint", str(file)], 2, timeout_s=30)
    assert result.returncode == 1, result.output
    assert "keras-optimizer" in result.ranks[0].stdout
    assert result.ranks[0].stdout.endswith("(1 silently wrong)\n")
    assert result.ranks[1].text == ""
    assert result.duration_s < 15


@pytest.mark.parametrize("options", [["--lint"], ["--json", "/tmp"]])
def test_wrong_options_are_told_once(options: list[str]) -> None:
    result = run_job([*COMMAND, *options], 2, timeout_s=30)
    assert result.returncode == 2, result.output
    assert result.output.count("mpistrat doctor: ") == 1
    assert result.duration_s < 15
