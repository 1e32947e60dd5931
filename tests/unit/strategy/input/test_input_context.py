"""The context of input and value functions, options of distributed data, NumPy data sets."""

import numpy as np
import pytest

from helpers.strategy.input_ranks import distribute
from mpistrat.data import AutoShardPolicy
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.input.distributed import make_numpy_dataset
from mpistrat.strategy.input.input_context import (
    InputContext,
    InputOptions,
    InputReplicationMode,
    RunOptions,
    ValueContext,
)


def test_b65_input_context():
    context = InputContext(2, 1, 4)
    assert (context.num_input_pipelines, context.input_pipeline_id) == (2, 1)
    assert context.get_per_replica_batch_size(8) == 2
    with pytest.raises(ValueError, match=r"global_batch_size=6 is not divisible .* such as 8"):
        context.get_per_replica_batch_size(6)
    default = InputContext()
    assert (default.num_input_pipelines, default.input_pipeline_id) == (1, 0)


def test_b50_value_context():
    context = ValueContext(1, 2)
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (1, 2)
    assert str(context) == "mpistrat.ValueContext(replica id 1, total replicas in sync: 2)"


def test_b25_options():
    assert RunOptions() == (True, False, None)
    assert RunOptions._fields[0] == "experimental_enable_dynamic_batch_size"
    options = InputOptions()
    assert options.experimental_fetch_to_device is True
    assert options.experimental_replication_mode is InputReplicationMode.PER_WORKER
    assert options.experimental_place_dataset_on_device is False
    assert options.experimental_per_replica_buffer_size == 1
    assert options.auto_shard_policy is AutoShardPolicy.AUTO
    assert InputOptions(auto_shard_policy=2).auto_shard_policy is AutoShardPolicy.DATA
    assert {p.name: p.value for p in AutoShardPolicy} == {
        "OFF": -1,
        "AUTO": 0,
        "FILE": 1,
        "DATA": 2,
        "HINT": 3,
    }
    assert InputReplicationMode("PER_REPLICA") is InputReplicationMode.PER_REPLICA


@pytest.mark.parametrize(
    "keywords",
    [
        {"experimental_replication_mode": "PER_WORKER"},
        {"experimental_per_replica_buffer_size": -1},
        {"experimental_per_replica_buffer_size": 1.5},
        {"auto_shard_policy": 7},
    ],
)
def test_bad_options(keywords):
    with pytest.raises((UsageError, ArgumentTypeError), match="expected"):
        InputOptions(**keywords)


def test_b70_e4_make_numpy_dataset():
    ones = make_numpy_dataset(np.ones([10], np.float32))
    assert [float(v) for v in ones] == [1.0] * 10
    assert distribute(ones) == [[1.0]] * 10
    assert distribute(ones.batch(4), 1, 2)[-1] == [[1.0], [1.0]]
    stacked = make_numpy_dataset([np.ones(3), np.zeros(3)])
    assert [row.tolist() for row in stacked] == [[1.0] * 3, [0.0] * 3]
    assert list(make_numpy_dataset((np.ones(2), {"a": np.zeros(2)}))) == [(1.0, {"a": 0.0})] * 2
    assert len(make_numpy_dataset((np.ones(2), [np.ones(3), np.zeros(3)]))) == 2
    for bad in (
        {"a": [np.ones(3), np.ones(3)]},
        (np.zeros(2), {"b": {"a": [np.ones(3)]}}),
        (np.ones(3), np.ones(2)),
        np.float32(1),
    ):
        with pytest.raises(ValueError, match=r"expected|differ"):
            make_numpy_dataset(bad)
