"""`PreemptionHandler` on ranks that are threads: all stop after the same step."""

import logging
import time

import numpy as np
import pytest

import mpistrat
from mpistrat import MirroredStrategy, Preempted, Variable
from mpistrat.errors import UsageError
from mpistrat.preemption.handler import PreemptionHandler as Handler
from mpistrat.testing.threads import run_ranks
from mpistrat.train import Checkpoint, CheckpointManager


def trained(comm, folder, steps, stop_at, made=CheckpointManager, **arguments):
    """Train on one rank for some steps; one of the ranks asks to stop in one of its steps."""
    with MirroredStrategy(comm=comm) as strategy, strategy.scope():
        state = Checkpoint(total=Variable(0.0), step=0)
        manager = made(state, folder, max_to_keep=2)
        try:
            with Handler(manager, signals=(), **arguments) as handler:
                for _ in range(steps[comm.rank]):
                    state.step += 1
                    if (comm.rank, state.step) == stop_at:
                        handler.request_stop()
                    time.sleep(0.011 + 0.01 * np.random.default_rng().random())
                    handler.end_step()
        except Preempted as stop:
            return stop.step, stop.saved
        return state.step, None


def test_all_ranks_stop_after_the_same_step_whichever_is_asked(tmp_path):
    for rank in range(3):
        folder = str(tmp_path / str(rank))
        found = run_ranks(3, trained, folder, (500,) * 3, (rank, 4 + rank))
        assert found[0][1] == f"{folder}/ckpt-1"
        assert len(set(found)) == 1
        assert 4 + rank <= found[0][0] <= 7 + rank


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_ranks_with_unequal_numbers_of_steps_stop_together(tmp_path, rank, outcome):
    """Rank 1 has 2 steps only; whichever rank is asked to stop, all save, and end."""
    steps, stop_at = (500, 2, 500), (rank, 2 if rank == 1 else 10)
    found = run_ranks(3, trained, str(tmp_path), steps, stop_at)
    assert [saved for _, saved in found] == [f"{tmp_path}/ckpt-1"] * 3
    assert found[0][0] == found[2][0]
    assert found[1][0] == 2
    assert outcome() == "REQUEUE"


class NotingManager(CheckpointManager):
    """Notes after which step each save comes."""

    def __init__(self, state, *arguments, **named):
        super().__init__(state, *arguments, **named)
        self.state, self.saved_after = state, []

    def save(self, *arguments, **named):
        self.saved_after.append(int(self.state.step))
        return super().save(*arguments, **named)


@pytest.mark.parametrize("steps", [(40, 3), (3, 40)])
def test_ranks_that_are_done_take_part_in_periodic_saves(tmp_path, outcome, steps):
    managers = {}

    def rank(comm):
        def noting(*arguments, **named):
            managers[comm.rank] = NotingManager(*arguments, **named)
            return managers[comm.rank]

        return trained(comm, tmp_path, steps, None, noting, save_every_steps=8)

    found = run_ranks(2, rank)
    assert found == [(count, None) for count in steps]
    after = managers[steps.index(40)].saved_after
    assert len(managers[0].saved_after) == len(managers[1].saved_after) >= 3
    # A save is agreed on in one step and made after the next. Not each step that is shorter than
    # 50 ms is looked at: of steps of 11 ms each 4th, so one that is due comes up to 3 steps later.
    # After the last step a rank waits for what it began there: a save is made without a next step.
    *gaps, last, rest = np.diff([0, *after, 40])
    assert all(9 <= gap <= 12 for gap in gaps), after
    assert (8 if after[-1] == 40 else 9) <= last <= 12, after
    assert rest < 12, after
    assert outcome() == "DONE"


def test_arguments_that_one_rank_refuses_are_told_to_all(tmp_path):
    def rank(comm):
        with MirroredStrategy(comm=comm) as strategy, strategy.scope():
            manager = CheckpointManager(Checkpoint(v=Variable(0.0)), tmp_path, 2)
            lead_s = 0 if comm.rank == 1 else 5
            with pytest.raises((UsageError, mpistrat.errors.MismatchError)) as caught:
                Handler(manager, signals=(), lead_s=lead_s)
            return str(caught.value)

    first, second = run_ranks(2, rank)
    assert "rank 1" in first
    assert "lead_s=0" in first
    assert second.startswith("lead_s=0")


def test_the_log_is_of_rank_0(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "mpistrat"):
        run_ranks(3, trained, str(tmp_path), (500,) * 3, (2, 3))
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "a request to stop came to rank 2" in text]) == 1
    assert texts.count(f"saved {tmp_path}/ckpt-1") == 1
