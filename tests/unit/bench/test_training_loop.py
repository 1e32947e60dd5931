"""The parts of the training loop: its examples, gradients, reference, and the parts of steps."""

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.testing.threads import run_ranks

pytest.importorskip("typer")

from mpistrat.bench.training_loop import reference
from mpistrat.bench.training_loop.check import other_weights, why_losses_differ
from mpistrat.bench.training_loop.examples import COUNT, global_batch, make_examples
from mpistrat.bench.training_loop.parts import Box, over_ranks
from mpistrat.bench.training_loop.perceptron import initial_values, loss_and_gradients
from mpistrat.bench.training_loop.reference import reference_losses
from mpistrat.bench.training_loop.scaling_case import fitting_rounds
from mpistrat.bench.training_loop.task import INPUTS, Task, check_batch

TASK = Task("strong", units=16, layers=2, global_batch=60, steps=5)


def of_rank(comm):
    """Return `over_ranks` of 2 rounds with 1 step: rank r computes 100 (r + 1), and waits."""
    with Communicator(comm) as communicator:
        rank = communicator.rank
        # Transfers of 50 and 60; all ranks leave with the last one, which computes for 300.
        rounds = [[10.0, 100.0 * (rank + 1), 100.0 * (2 - rank) + sent] for sent in (50, 60)]
        return over_ranks(np.array(rounds)[:, None], communicator)


def test_waiting_is_what_a_rank_is_longer_in_the_collective_than_the_fastest():
    for steps in run_ranks(3, of_rank):
        np.testing.assert_array_equal(steps.slowest, [[360], [370]])
        assert steps.parts() == {
            "input": 10,
            "compute": 200,
            "communication": 55,  # the median of 50 and 60
            "idle": 100,  # the mean of 200, 100 and 0
        }
        assert steps.medians_us == [360, 370]
        assert steps.times() == {"min": 360, "median": 365, "p99": 369.9, "max": 370}
        hosts = ["a", "a", "b"]
        assert [(one["host"], one["median"]) for one in steps.by_rank(hosts)] == [
            *(("a", 110), ("a", 210), ("b", 310))
        ]


def test_a_box_has_quartiles():
    box = Box.of(np.array([[4.0, 2.0, 3.0], [5.0, 1.0, 3.0]]))
    assert box.record() == {"min": 1, "q1": 2.25, "median": 3, "q3": 3.75, "max": 5}


def test_classes_are_linearly_separable():
    images, labels = make_examples()
    assert images.shape == (COUNT, INPUTS)
    assert images.dtype == np.float32
    # The nearest centre is a linear rule.
    centres = np.stack([images[labels == one].mean(axis=0) for one in range(10)])
    scores = images @ centres.T - (centres**2).sum(axis=1) / 2
    np.testing.assert_array_equal(scores.argmax(axis=1), labels)


def test_batches_go_round():
    images, labels = make_examples()
    mine, numbers = global_batch(2, 3000)  # examples 6000 to 8999, modulo 4096
    np.testing.assert_array_equal(mine[0], images[6000 - COUNT])
    np.testing.assert_array_equal(numbers[-1], labels[8999 - 2 * COUNT])
    assert len(global_batch(0, 2 * COUNT)[0]) == 2 * COUNT


def test_gradients_are_the_slopes_of_the_loss():
    random = np.random.default_rng(0)
    values = [one.astype(np.float64) for one in initial_values((4, 5, 3))]
    images, labels = random.normal(size=(7, 4)), random.integers(0, 3, 7)
    _, gradients = loss_and_gradients(values, images, labels)
    for value, gradient in zip(values, gradients, strict=True):
        assert value.shape == gradient.shape
        for place in np.ndindex(value.shape):
            losses = []
            for change in (1e-6, -2e-6):
                value[place] += change
                losses.append(loss_and_gradients(values, images, labels)[0])
            value[place] += 1e-6
            np.testing.assert_allclose((losses[0] - losses[1]) / 2e-6, gradient[place], atol=1e-6)


def test_the_reference_learns_and_does_not_depend_on_its_pieces(monkeypatch):
    losses = reference_losses(TASK, 40)
    assert losses[-1] < losses[0] / 2
    monkeypatch.setattr(reference, "_PIECE", 7)
    np.testing.assert_allclose(reference_losses(TASK, 8), losses[:8], rtol=1e-12)


def test_sizes_are_counted():
    assert TASK.sizes == (INPUTS, 16, 16, 10)
    assert TASK.parameters == sum(one.size for one in initial_values(TASK.sizes))
    record = TASK.record(8)
    assert (record["network"], record["rank_batch"]) == ("mlp-2x16", 7.5)
    assert record["bytes"] == 4 * record["parameters"]


def test_the_first_wrong_loss_is_named():
    assert why_losses_differ([2.0, 1.00005], [2.0, 1.0]) is None
    said = why_losses_differ([2.0, 1.001, 0.5], [2.0, 1.0, 0.25])
    assert said == "the loss of step 2 is 1.001; one process gets 1"
    assert why_losses_differ([float("nan")], [1.0]) is not None


def test_other_weights_are_named():
    def difference(comm):
        with Communicator(comm) as communicator:
            weights = [np.zeros(3), np.full(2, 1.0 + (communicator.rank == 1) * 1e-15)]
            return other_weights(communicator, weights)

    assert run_ranks(3, difference) == ["the weights of ranks [1] are not those of rank 0"] * 3
    assert run_ranks(1, difference) == [None]


@pytest.mark.parametrize(
    ("asked", "round_s", "expected"), [(7, 1, 7), (7, 2.5, 4), (7, 60, 3), (2, 60, 2)]
)
def test_rounds_fit_into_the_time(asked, round_s, expected):
    assert fitting_rounds(asked, 10.0, round_s) == expected


def test_a_batch_has_an_example_a_rank():
    check_batch(4, 4)
    with pytest.raises(UsageError, match=r"for 4 ranks; expected an example a rank.*--batch 4"):
        check_batch(3, 4)
