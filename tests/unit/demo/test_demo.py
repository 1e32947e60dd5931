"""The demo: its network's gradient, and the same training however many replicas share it."""

import subprocess
import sys

import numpy as np
import pytest

import mpistrat
from mpistrat.demo.digits import Digits, split
from mpistrat.demo.network import Network
from mpistrat.demo.same_bits import digests, outliers
from mpistrat.demo.timed_all_reduce import TimedAllReduce
from mpistrat.demo.train import Options, Trainer


def some_digits(examples: int = 230) -> Digits:
    """Return made-up images, each the blurred picture of its label; of no round number."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 10, examples)
    pictures = random.random((10, 64))
    return split(pictures[labels] + 0.3 * random.random((examples, 64)), labels)


def strategy_with(devices: int) -> mpistrat.MirroredStrategy:
    names = [f"CPU:{index}" for index in range(devices)]
    return mpistrat.MirroredStrategy(names, cross_device_ops=TimedAllReduce())


def total_loss(network: Network, images: np.ndarray, labels: np.ndarray) -> float:
    return float(network.losses_and_gradients(images, labels)[0].sum())


def test_gradient_is_that_of_finite_differences() -> None:
    random = np.random.default_rng(0)
    images, labels = random.random((7, 6)), random.integers(0, 4, 7)
    network = Network((6, 5, 4), seed=3)
    _, gradients = network.losses_and_gradients(images, labels)
    assert [g.shape for g in gradients] == [v.shape for v in network.variables]
    step = 1e-6
    for variable, gradient in zip(network.variables, gradients, strict=True):
        start = variable.numpy()
        for place in np.ndindex(start.shape):
            sides = []
            for sign in (1, -1):
                moved = start.copy()
                moved[place] += sign * step
                variable.assign(moved)
                sides.append(total_loss(network, images, labels))
            variable.assign(start)
            difference = (sides[0] - sides[1]) / (2 * step)
            assert gradient[place] == pytest.approx(difference, rel=1e-6, abs=1e-7)


def test_no_example_gives_no_loss_and_gradients_of_zero() -> None:
    network = Network((6, 5, 4))
    losses, gradients = network.losses_and_gradients(np.empty((0, 6)), np.empty(0, np.int64))
    assert losses.shape == (0,)
    assert all(not gradient.any() for gradient in gradients)


def test_losses_do_not_overflow() -> None:
    network = Network((2, 3))
    network.weights[0].assign(np.array([[1e4, 0, 0], [0, 0, 1e4]]))
    losses, gradients = network.losses_and_gradients(np.eye(2), np.array([0, 0]))
    assert losses.tolist() == [0.0, 1e4]
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_epoch_is_the_same_on_any_number_of_replicas() -> None:
    digits = some_digits()
    outcomes = []
    for devices in (1, 2, 5):
        trainer = Trainer(strategy_with(devices), digits, Options(epochs=1, batch_size=32))
        epoch = trainer.run_epoch(1)
        outcomes.append((epoch, [variable.numpy() for variable in trainer.variables]))
    (first, weights), *others = outcomes
    assert first.samples == 184
    for epoch, same in others:
        assert epoch.loss == pytest.approx(first.loss, rel=1e-12)
        assert epoch.accuracy == first.accuracy
        for left, right in zip(weights, same, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)


def test_last_batch_may_be_smaller_than_the_number_of_replicas() -> None:
    """Of 184 images, batches of 61 leave one image, for four replicas."""
    digits = some_digits()
    epochs = [
        Trainer(strategy_with(devices), digits, Options(epochs=1, batch_size=61)).run_epoch(1)
        for devices in (1, 4)
    ]
    assert epochs[0].loss == pytest.approx(epochs[1].loss, rel=1e-12)
    assert epochs[0].accuracy == epochs[1].accuracy


def test_steps_are_counted_and_communication_is_timed() -> None:
    timer = TimedAllReduce()
    strategy = mpistrat.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=timer)
    trainer = Trainer(strategy, some_digits(), Options(epochs=2, batch_size=32), timer)
    steps: list[None] = []
    epoch = trainer.run_epoch(1, lambda: steps.append(None))
    assert len(steps) == trainer.steps == 6
    assert 0 < epoch.communication_s < epoch.duration_s
    assert epoch.communication_s <= timer.seconds


def test_replicas_that_differ_are_named() -> None:
    strategy = strategy_with(3)
    with strategy.scope():
        variables = [mpistrat.Variable(np.zeros(4)), mpistrat.Variable(1.0)]
    hashes = digests(strategy, variables)
    assert len(hashes) == 3
    assert outliers(hashes) == []
    variables[1].values[2].assign(np.nextafter(1.0, 2.0))
    assert outliers(digests(strategy, variables)) == [2]


@pytest.mark.parametrize("module", ["demo", "bench"])
def test_missing_packages_are_named_with_the_extra(module: str) -> None:
    code = f"""
import runpy, sys
sys.modules.update(rich=None, sklearn=None, typer=None)
runpy.run_module("mpistrat.{module}", run_name="__main__")
"""
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f'pip install "mpistrat[{module}]"' in done.stderr
    assert "typer, rich" in done.stderr


def test_no_cupy_is_said_in_one_line() -> None:
    code = """
import runpy, sys
sys.modules.update(cupy=None)
sys.argv = ["demo", "--device", "gpu"]
runpy.run_module("mpistrat.demo", run_name="__main__")
"""
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    for extra in ("install mpistrat[cuda]", "mpistrat[rocm]"):
        assert extra in done.stderr
