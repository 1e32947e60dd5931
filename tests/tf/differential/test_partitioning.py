"""Variables that TensorFlow's ParameterServerStrategy divides, and the same divided here.

TensorFlow's runs in a process of its own, with a worker and a ps. What is otherwise here: without
rows a variable is in one part, where TensorFlow has an error, and so it is with a partitioner of
one's own that wants several parts of one row, where TensorFlow has a container of one.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import mpistrat
from mpistrat.experimental import partitioners
from mpistrat.strategy.variables.sharded.partitioning import partitioned
from mpistrat.testing.sets import takes_long

SHAPES = [[], [1], [2, 3], [5], [13, 2], [64, 8], [1000, 3, 2]]
DTYPES = ["float32", "int64", "float16"]
PARTITIONERS = [
    ["FixedShardsPartitioner", {"num_shards": 1}],
    ["FixedShardsPartitioner", {"num_shards": 3}],
    ["MinSizePartitioner", {"min_shard_bytes": 32, "max_shards": 4}],
    ["MaxSizePartitioner", {"max_shard_bytes": 100}],
    ["MaxSizePartitioner", {"max_shard_bytes": 100, "max_shards": 2}],
]
OWN = [[2, 1], [3, 2], [0, 1], [], [1, 1], [100, 1]]

TENSORFLOW = """
import json, os, socket, sys
import numpy as np
import tensorflow as tf

shapes, dtypes, made, own = json.loads(sys.argv[1])

def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]

cluster = {name: [f"localhost:{free_port()}"] for name in ("worker", "ps")}
spec = tf.train.ClusterSpec(cluster)
servers = [tf.distribute.Server(spec, job_name=name, task_index=0) for name in cluster]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")

def strategy(partitioner):
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)

def facts(v):
    parts = v.variables if hasattr(v, "variables") else []
    values = [p.numpy().tolist() for p in parts] or [v.numpy().tolist()]
    return [list(v.shape), [p.name for p in parts], values]

def initial(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)

result = []
for name, how in made:
    s = strategy(getattr(tf.distribute.experimental.partitioners, name)(**how))
    with s.scope():
        for shape in shapes:
            for dtype in dtypes:
                result.append(facts(tf.Variable(initial(shape, dtype), name="w")))
with s.scope():
    w = tf.Variable(initial([13, 2], "float32"), name="w")
    with s.extended.colocate_vars_with(w.variables[0]):
        result.append(facts(tf.Variable(initial([13, 2], "float32"), name="beside")))
    asked = []
    def by_parts(partition_shape=(5, 2), partition_offset=(0, 0)):
        asked.append([[int(n) for n in partition_shape], [int(n) for n in partition_offset]])
        return tf.fill(partition_shape, float(partition_offset[0]))
    v = tf.Variable(by_parts, shape=(5, 2), dtype=tf.float32, name="v")
    result += [facts(v), asked]
for counts in own:
    with strategy(lambda shape, dtype: counts).scope():
        try:
            result.append(facts(tf.Variable(initial([7, 2], "float32"), name="w")))
        except Exception as error:
            result.append(type(error).__name__)
print("RESULT" + json.dumps(result), flush=True)
os._exit(0)  # the servers cannot be stopped
"""


def facts(v):
    parts = v.variables if isinstance(v, mpistrat.ShardedVariable) else []
    values = [part.numpy().tolist() for part in parts] or [v.numpy().tolist()]
    return [list(v.shape), [part.name for part in parts], values]


def make(partitioner, **arguments):
    """Return a variable, divided as a strategy would do it."""
    create = mpistrat.Variable
    return partitioned(lambda all_: [create(**one) for one in all_], arguments, partitioner)


def initial(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def ours():
    result = []
    for name, how in PARTITIONERS:
        partitioner = getattr(partitioners, name)(**how)
        for shape in SHAPES:
            for dtype in DTYPES:
                v = make(partitioner, initial_value=initial(shape, dtype), name="w")
                result.append(facts(v))
    w = make(partitioner, initial_value=initial([13, 2], "float32"), name="w")
    with mpistrat.get_strategy().extended.colocate_vars_with(w.variables[0]):
        v = make(partitioner, initial_value=initial([13, 2], "float32"), name="beside")
        result.append(facts(v))
    asked = []

    def by_parts(partition_shape=(5, 2), partition_offset=(0, 0)):
        asked.append([list(partition_shape), list(partition_offset)])
        return np.full(partition_shape, float(partition_offset[0]))

    v = make(partitioner, initial_value=by_parts, shape=(5, 2), dtype=np.float32, name="v")
    result += [facts(v), asked]
    for counts in OWN:
        try:
            v = make(lambda **_: counts, initial_value=initial([7, 2], "float32"), name="w")  # noqa: B023
            result.append(facts(v))
        except ValueError:  # noqa: PERF203
            result.append("ValueError")
    return result


@takes_long()
@pytest.mark.deadline(150)  # TensorFlow starts in another process, on a machine with other work
def test_the_same_parts():
    arguments = json.dumps([SHAPES, DTYPES, PARTITIONERS, OWN])
    done = subprocess.run(
        [sys.executable, "-c", TENSORFLOW, arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "RESULT" in done.stdout, done.stderr
    theirs = json.loads(done.stdout.split("RESULT")[1])
    assert len(theirs) == len(SHAPES) * len(DTYPES) * len(PARTITIONERS) + 3 + len(OWN)
    for one, two in zip(theirs, ours(), strict=True):
        assert one == two
