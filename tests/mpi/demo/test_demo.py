"""The main job: `mpirun -n 2 python -m mpistrat.demo`, as its users start it."""

import functools
import re
from importlib.util import find_spec

import pytest

import mpistrat
from mpistrat.demo.digits import split
from mpistrat.demo.same_bits import digests, outliers
from mpistrat.demo.train import Options, Trainer
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import takes_long, with_all

# Not imported here: that takes a second.
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")


@functools.cache
def demo(ranks: int, *arguments: str) -> JobResult:
    return run_job(["-m", "mpistrat.demo", *arguments], ranks, timeout_s=30)


def epochs_of(result: JobResult) -> list[tuple[float, float]]:
    """Return each epoch's loss and test accuracy in percent."""
    pattern = r"^epoch +\d+/\d+ \[[#.]{20}\] loss ([\d.]+) +test accuracy +([\d.]+)% "
    return [
        (float(loss), float(accuracy))
        for loss, accuracy in re.findall(pattern, result.ranks[0].stdout, re.MULTILINE)
    ]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=takes_long())])
def test_job_learns_the_digits_and_reports_once(ranks: int) -> None:
    result = demo(ranks).check()
    report = result.ranks[0].stdout
    backend = "mpi" if why_no_kernels() else "shm"
    assert f"replicas: {ranks}, ranks: {ranks}, backend: {backend}" in report
    assert len(epochs_of(result)) == 20
    accuracy, communication, bits = report.splitlines()[-3:]
    final = re.fullmatch(r"test accuracy ([\d.]+)% after [\d.]+ s.* \d+ samples/s", accuracy)
    assert final is not None
    assert float(final[1]) >= 97
    assert re.match(r"communicating \d+% of that time", communication)
    assert re.match(rf"all replicas hold the same bits: {ranks} x sha256 \w{{16}}", bits)
    assert "\x1b" not in report, "escape codes in what may be a file"
    assert [output.text for output in result.ranks[1:]] == [""] * (ranks - 1)


@takes_long()
def test_number_of_ranks_changes_nothing_but_rounding() -> None:
    four_replicas, three = epochs_of(demo(2, "--devices", "2")), epochs_of(demo(3))
    assert four_replicas == three


@takes_long()
def test_ranks_with_two_replicas_each() -> None:
    result = demo(2, "--devices", "2").check()
    assert "replicas: 4, ranks: 2" in result.ranks[0].stdout
    assert "all replicas hold the same bits: 4 x" in result.ranks[0].stdout
    losses = [loss for loss, _ in epochs_of(result)][:3]
    assert losses == sorted(losses, reverse=True)


@takes_long()
def test_replicas_that_differ_end_the_job_with_an_error() -> None:
    code = """
import sys
import mpistrat.demo.command as command
from mpistrat.demo.train import Trainer

class Careless(Trainer):
    def run_epoch(self, *arguments):
        epoch = super().run_epoch(*arguments)
        if self._strategy.extended.communicator.rank == 1:
            self.variables[0].assign_add(self.variables[0].numpy() * 1e-15)
        return epoch

command.Trainer = Careless
command.app(["--epochs", "1"])
"""
    result = run_job(["-c", code], 3, timeout_s=30)
    assert result.returncode != 0
    assert not result.timed_out
    assert re.search(r"^  replica 1: \w{16}", result.ranks[0].stdout, re.MULTILINE)
    assert "replica 2" not in result.ranks[0].stdout


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3)
def test_trainer_leaves_the_same_bits_on_every_rank() -> None:
    import numpy as np

    random = np.random.default_rng(0)
    digits = split(random.random((100, 64)), random.integers(0, 10, 100))
    strategy = mpistrat.MirroredStrategy()
    trainer = Trainer(strategy, digits, Options(epochs=2, batch_size=16))
    trainer.run_epoch(1)
    hashes = digests(strategy, trainer.variables)
    assert len(hashes) == strategy.num_replicas_in_sync
    assert outliers(hashes) == []
    strategy.close()
