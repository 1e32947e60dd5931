"""Random streams that depend on their key and on nothing else."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat import random
from mpistrat.strategy import context
from mpistrat.testing.sets import takes_long

KEYS = st.tuples(
    st.integers(0, 2**70),
    st.text(max_size=8),
    st.integers(0, 2**40),
    st.one_of(st.none(), st.integers(0, 2**20)),
)


def draw(key, count=4):
    seed, stream, step, replica = key
    return (
        random.generator(seed, stream=stream, step=step, replica_id=replica).random(count).tolist()
    )


@pytest.fixture(autouse=True)
def cross_replica(monkeypatch):
    monkeypatch.setattr(context, "get_replica_context", lambda: None)


@takes_long()
@given(KEYS)
def test_the_same_key_gives_the_same_numbers(key):
    assert draw(key) == draw(key)


@takes_long()
@given(KEYS, KEYS)
def test_other_keys_give_other_numbers(left, right):
    assert (draw(left) == draw(right)) == (left == right)


def test_every_part_of_the_key_counts():
    keys = [
        (1, "", 0, None),
        (1, "", 0, 0),
        (1, "", 0, 1),
        (1, "", 1, 0),
        (1, "a", 0, 0),
        (2, "", 0, 0),
        (2**32, "", 0, 0),
        (1, "", 2**32, 0),
    ]
    assert len({tuple(draw(key)) for key in keys}) == len(keys)


def test_streams_of_replicas_are_uncorrelated():
    streams = np.array([draw((3, "noise", 0, r), 4000) for r in range(6)])
    correlations = np.corrcoef(streams)[~np.eye(6, dtype=bool)]
    assert np.abs(correlations).max() < 0.08  # five standard deviations at n = 4000


def test_restarts_and_other_processes_agree():
    program = (
        "from mpistrat.random import generator;"
        "print(generator(11, stream='dropout', step=9, replica_id=2).integers(0, 2**62))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    here = random.generator(11, stream="dropout", step=9, replica_id=2).integers(0, 2**62)
    assert outputs == {f"{here}\n"}


def test_the_running_replica_is_the_default(monkeypatch):
    class Replica:
        replica_id_in_sync_group = 5

    common = random.generator(1).random()
    monkeypatch.setattr(context, "get_replica_context", Replica)
    assert random.generator(1).random() == random.generator(1, replica_id=5).random()
    assert random.generator(1).random() != common


def test_numpy_integers_are_integers():
    left = random.generator(np.int64(3), step=np.int32(2), replica_id=np.int64(1)).random()
    assert left == random.generator(3, step=2, replica_id=1).random()


@pytest.mark.parametrize(
    ("seed", "keywords", "error"),
    [
        (-1, {}, ValueError),
        (1, {"step": -1}, ValueError),
        (1, {"replica_id": 2**32}, ValueError),
        (1.5, {}, TypeError),
        (True, {}, TypeError),
        (1, {"stream": 3}, TypeError),
    ],
)
def test_bad_keys(seed, keywords, error):
    with pytest.raises(error, match="expected"):
        random.generator(seed, **keywords)
