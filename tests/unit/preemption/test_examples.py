"""The examples of the docstring and of docs/preemption.md run as they are written."""

import os
import re
import signal
import textwrap
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from mpistrat.optimizers import SGD
from mpistrat.preemption.handler import PreemptionHandler

PAGE = Path(__file__).parents[3] / "docs" / "preemption.md"
DOCSTRING = textwrap.dedent(
    (PreemptionHandler.__doc__ or "").partition("code-block:: python\n")[2]
)
ARRAYS, _KERAS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
BATCHES, EPOCHS = 10, 3


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MPISTRAT_OUTCOME_FILE", raising=False)


def run(text, names):
    """Run an example; return the checkpoint with which it was stopped, or None."""
    names = {"np": np, "mpistrat": mpistrat, **names}
    try:
        exec(text, names)
    except mpistrat.Preempted as stop:
        return stop.saved
    finally:
        names["handler"].release()  # this process goes on
        names["strategy"].close()
    return None


def rows():
    return mpistrat.data.Dataset.from_tensor_slices(np.arange(40.0)).shuffle(40, seed=1).batch(4)


def test_the_docstring():
    assert len(DOCSTRING.strip().splitlines()) <= 12
    done = []

    def train_step(batch):
        done.append(np.asarray(batch).tolist())
        if len(done) == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    names = {"dataset": rows(), "train_step": train_step}
    assert run(DOCSTRING, names) == "checkpoints/ckpt-1"
    assert 3 <= len(done) < BATCHES
    assert run(DOCSTRING, names) is None
    assert sorted(row for batch in done for row in batch) == list(range(40))  # each once


def trained(strike_at=None):
    """Run the page's example with a small model; return its weights, or None if it was stopped."""
    strategy = mpistrat.MirroredStrategy()
    with strategy.scope():
        weights = mpistrat.Variable(np.zeros(2))
        optimizer = SGD(0.01, momentum=0.9)
        optimizer.build([weights])

    def train_step(batch, step):
        noise = mpistrat.random.generator(5, step=step).normal(size=2)
        optimizer.apply_gradients([(weights.value() - batch.mean() + noise, weights)])
        if step == strike_at:
            os.kill(os.getpid(), signal.SIGTERM)

    names = {"strategy": strategy, "weights": weights, "optimizer": optimizer, "EPOCHS": EPOCHS}
    if run(ARRAYS, {**names, "dataset": rows(), "train_step": train_step}):
        return None
    assert optimizer.iterations == BATCHES * EPOCHS
    return weights.numpy()


def test_the_page(monkeypatch, tmp_path):
    whole = trained()
    for name, strike_at in (("early", 3), ("late", 24)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert trained(strike_at) is None
        np.testing.assert_array_equal(trained(), whole)
