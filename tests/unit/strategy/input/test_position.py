"""A distributed data set goes on where a checkpoint says that it was."""

import itertools

import numpy as np
import pytest

import mpistrat
from mpistrat import InputOptions
from mpistrat.data import AutoShardPolicy, Dataset
from mpistrat.strategy.input.dataset_rows import Rows
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks
from mpistrat.train import Checkpoint

ROWS, BATCH, EPOCHS = 20, 6, 3


def shuffled():
    return Dataset.from_tensor_slices(np.arange(ROWS)).shuffle(ROWS, seed=3)


def batches():
    return shuffled().batch(BATCH)


def own_rows(context):
    """Return the data set of one rank, of fewer rows on the last."""
    return shuffled().shard(context.num_input_pipelines, context.input_pipeline_id).batch(3)


def distributed(strategy, kind):
    if kind == "function":
        return strategy.distribute_datasets_from_function(own_rows)
    data = batches().map(lambda rows: 2 * rows) if kind == "map" else batches()
    options = InputOptions(auto_shard_policy=AutoShardPolicy.OFF) if kind == "off" else None
    return strategy.experimental_distribute_dataset(data, options)


def read(data, left):
    """Return up to `left` steps over passes, as (pass, values of this rank)."""
    found = []
    for number in range(EPOCHS):
        for step in data:
            found.append((number, [np.asarray(one).tolist() for one in local(step)]))
            if len(found) == left:
                return found
    return found


def local(step):
    return step.values if hasattr(step, "values") else [step]


@takes_long()
@pytest.mark.parametrize("kind", ["batches", "map", "off", "function"])
@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]])
def test_after_any_number_of_steps(kind, devices, tmp_path):
    def rank(comm):
        with mpistrat.MirroredStrategy(devices, comm=comm) as strategy, strategy.scope():
            whole = [values for _, values in read(distributed(strategy, kind), 10**9)]
            for steps in range(1, len(whole)):
                data = distributed(strategy, kind)
                state = Checkpoint(data=data.position)
                walk = walked(data)
                for _ in range(steps):
                    next(walk)
                path = state.write(tmp_path / f"{kind}-{len(devices)}-{steps}")
                again = distributed(strategy, kind)
                Checkpoint(data=again.position).read(path).assert_consumed()
                rest = [values for _, values in read(again, len(whole) - steps)]
                assert rest == whole[steps:], steps
            return len(whole)

    lengths = run_ranks(2, rank, timeout_s=60)
    assert lengths[0] == lengths[1] >= 6


def walked(data):
    """Yield steps of pass after pass."""
    for _ in itertools.count():
        yield from data


def test_what_a_program_has_left_is_over():
    """After a `break` the program would go on with the next pass, and so does a restart."""
    with mpistrat.OneDeviceStrategy("CPU:0") as strategy:
        data = strategy.experimental_distribute_dataset(batches())
        for _ in data:
            assert data.tell() == (0, 1)
            break
        assert data.tell() == (1, 0)


def test_a_pass_that_has_ended_is_over():
    with mpistrat.OneDeviceStrategy("CPU:0") as strategy:
        data = strategy.experimental_distribute_dataset(batches())
        assert data.tell() == (0, 0)
        iterator = iter(data)
        assert data.tell() == (0, 0)
        for number in range(4):
            next(iterator)
            assert data.tell() == (0, number + 1)
        assert next(iterator, None) is None
        assert data.tell() == (1, 0)


def test_what_is_left_out_is_not_loaded(monkeypatch):
    """Row numbers are skipped, not rows: a restart deep in a pass costs next to nothing."""
    loaded = []
    load = Rows.__call__
    monkeypatch.setattr(Rows, "__call__", lambda rows, at: loaded.append(at) or load(rows, at))
    with mpistrat.OneDeviceStrategy("CPU:0") as strategy:
        ordered = Dataset.from_tensor_slices(np.arange(1000)).batch(10)
        data = strategy.experimental_distribute_dataset(ordered)
        data.seek(5, 98)
        assert [int(np.asarray(one)[0]) for one in data] == [980, 990]
        assert data.tell() == (6, 0)
    assert np.concatenate(loaded).tolist() == list(range(980, 1000))


def test_it_is_not_found_by_itself(tmp_path):
    """An object that has a data set does not save its position: that has to be asked for."""

    class Trainer:
        def __init__(self, data):
            self.data = data

    with mpistrat.OneDeviceStrategy("CPU:0") as strategy, strategy.scope():
        data = strategy.experimental_distribute_dataset(batches())
        path = Checkpoint(Trainer(data), step=1).write(tmp_path / "one")
        assert Checkpoint(step=0).read(path).assert_consumed()
