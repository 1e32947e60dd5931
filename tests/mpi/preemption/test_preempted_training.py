"""Trainings on real ranks that real signals stop: they go on, and end with the same bits."""

import json
import os
import re
from pathlib import Path

import pytest

from helpers.preemption.training import STEPS
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(120)
LAST = re.compile(r"from (None|\d+) to (\d+): (\w+)")


class Runs:
    """Run the training of tests/helpers/preemption again and again in one folder."""

    def __init__(self, folder, ranks=2):
        self.folder, self.ranks = folder, ranks
        self.outcome_file = folder / "outcome"

    def __call__(self, status=0, **options):
        """Run it once, to this status or any but 0 (None); return what the ranks printed."""
        self.outcome_file.unlink(missing_ok=True)
        job = run_job(
            ["-m", "helpers.preemption.training", str(self.folder / "ckpt"), json.dumps(options)],
            self.ranks,
            60,
            {"MPISTRAT_OUTCOME_FILE": str(self.outcome_file)},
        )
        assert not job.timed_out, job.output
        assert job.returncode == status if status is not None else job.returncode, job.output
        self.log = job.output
        return [rank.stdout.strip() for rank in job.ranks]

    @property
    def outcome(self):
        return self.outcome_file.read_text().strip()

    @property
    def saved(self):
        return sorted(path.name for path in (self.folder / "ckpt").glob("ckpt-*"))

    def to_the_end(self):
        """Run it to its end; return from which step, and the digest of the weights."""
        found = {LAST.fullmatch(line).groups() for line in self()}
        assert len(found) == 1
        ((first, last, digest),) = found
        assert (int(last), self.outcome) == (STEPS, "DONE")
        return None if first == "None" else int(first), digest


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def digest(tmp_path_factory):
    """Return the digest of the weights after a training that nobody stops."""
    first, found = Runs(tmp_path_factory.mktemp("whole")).to_the_end()
    assert first is None
    return found


@pytest.mark.parametrize("name", ["SIGUSR1", pytest.param("SIGTERM", marks=repeats())])
def test_a_signal_to_one_rank_stops_all_and_the_rest_gives_the_same_bits(runs, digest, name):
    # Steps that are long enough for a round of agreement in each.
    assert runs(strikes=[(7, 1, name, 0)], pause_s=0.06) == ["", ""]
    assert runs.outcome == "REQUEUE"
    assert runs.saved == ["ckpt-1"]
    assert f"{name} came to rank 1; all ranks stop after step" in runs.log
    first, again = runs.to_the_end()
    assert 8 <= first <= 10
    assert again == digest


@takes_long()
def test_many_stops_and_second_signals(runs, digest):
    """Signals to all ranks, twice, and in each part of the training."""
    for step in (0, 4, 9):
        twice = [(step, rank, "SIGUSR1", 0) for rank in (0, 1)]
        again = [(step + 1, rank, "SIGTERM", 0) for rank in (0, 1)]
        assert runs(strikes=[*twice, *again]) == ["", ""]
        assert runs.outcome == "REQUEUE"
    assert runs.saved == ["ckpt-2", "ckpt-3"]  # the last two are kept
    assert runs.to_the_end()[1] == digest


@takes_long()
def test_a_signal_while_a_save_is_under_way(runs, digest):
    runs(
        strikes=[(-1, 0, "SIGUSR1", 0.1)],
        pause_s=0.06,
        save_s=0.3,
        handler={"save_every_steps": 5},
    )
    assert runs.outcome == "REQUEUE"
    assert runs.saved == ["ckpt-1", "ckpt-2"]  # the periodic one, and that of the step after it
    assert runs.to_the_end()[1] == digest


@takes_long()
def test_a_save_that_would_end_too_late_is_not_begun(runs, digest):
    runs(
        strikes=[(8, 0, "SIGUSR1", 0)],
        pause_s=0.06,
        save_s=1.5,
        handler={"save_every_steps": 4, "lead_s": 2},
    )
    assert runs.outcome == "REQUEUE"
    assert runs.saved == ["ckpt-1"]
    assert "are left: not begun; the checkpoint that counts is" in runs.log
    first, again = runs.to_the_end()
    assert 4 <= first <= 6
    assert again == digest


@takes_long()
@pytest.mark.parametrize(
    ("rank", "in_mpi"),
    [
        (0, True),
        pytest.param(1, False, marks=takes_long()),
        pytest.param(0, False, marks=repeats()),
        pytest.param(1, True, marks=repeats()),
    ],
)
def test_a_rank_that_never_comes_is_found_by_the_deadline(runs, digest, rank, in_mpi):
    """The deadline of collectives is 300 s, and that of a call of MPI none at all."""
    runs(
        status=os.EX_TEMPFAIL,
        strikes=[(8, rank, "SIGUSR1", 0.3)],
        stuck=(8, in_mpi),
        handler={"save_every_steps": 4, "lead_s": 3},
    )
    assert runs.outcome == "REQUEUE"
    assert re.search(rf"rank {rank}/2 has not stopped in time \(\d s after SIGUSR1\)", runs.log)
    assert f"rank {1 - rank} came last to call" in runs.log
    assert "training.py" in runs.log
    assert runs.to_the_end()[1] == digest


@takes_long()
def test_a_rank_that_is_killed_in_a_save_leaves_the_one_before(runs, digest):
    runs(
        status=None,
        strikes=[(-2, 1, "SIGKILL", 0.1)],
        pause_s=0.06,
        save_s=0.3,
        handler={"save_every_steps": 4},
    )
    assert runs.saved == ["ckpt-1"]
    first, again = runs.to_the_end()
    assert 4 <= first <= 6
    assert again == digest


@takes_long()
def test_four_ranks_of_two_nodes(tmp_path, monkeypatch):
    monkeypatch.setenv("MPISTRAT_NODE_SIZE", "2")
    whole = Runs(tmp_path / "whole", 4)
    whole.folder.mkdir()
    _, digest = whole.to_the_end()
    for rank in (0, 3):
        runs = Runs(Path(tmp_path) / f"stopped-{rank}", 4)
        runs.folder.mkdir()
        runs(strikes=[(5, rank, "SIGUSR1", 0)])
        assert runs.outcome == "REQUEUE"
        assert runs.to_the_end()[1] == digest
