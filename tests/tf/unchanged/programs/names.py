"""Names that are exchanged and names that are not, wherever a program takes them from."""

import os
import sys

import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow import distribute
from tensorflow.compat.v1.distribute import MirroredStrategy as Older
from tensorflow.compat.v2.distribute.experimental import CentralStorageStrategy
from tensorflow.python.distribute import mirrored_strategy

size = int(sys.argv[1])
assert tf.distribute is distribute is not tf.compat.v2.distribute
assert Older is tf1.distribute.MirroredStrategy is tf.distribute.MirroredStrategy
assert CentralStorageStrategy is tf.distribute.experimental.CentralStorageStrategy
assert mirrored_strategy.MirroredStrategy.__module__.startswith("tensorflow.")
# By text: a program that names it is taken for one with parameter servers.
of_estimators = getattr(tf1.distribute.experimental, "ParameterServerStrategy")  # noqa: B009
assert of_estimators.__module__.startswith("tensorflow.")
assert tf.distribute.Strategy.__module__.startswith("tensorflow.")
assert {"MirroredStrategy", "ReduceOp", "coordinator"} <= {*dir(tf.distribute)}
assert not hasattr(tf.distribute, "NoSuchName")
assert tf.distribute.__name__ == "tensorflow._api.v2.distribute"
assert tf.__spec__.name == "tensorflow"

_ = tf.constant(1) + 1  # it starts TensorFlow, and its threads
ring = tf.distribute.experimental.CollectiveCommunication.RING
with tf.distribute.experimental.MultiWorkerMirroredStrategy(ring) as strategy:
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    assert strategy.num_replicas_in_sync == size
    assert strategy.cluster_resolver.task_type == "worker"
given = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({"worker": ["a:1", "b:1"]}), task_type="worker", task_id=0
)
with tf.distribute.MultiWorkerMirroredStrategy(given) as strategy:
    assert strategy.cluster_resolver.cluster_spec().num_tasks("worker") == size
    rank = strategy.cluster_resolver.task_id
with tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]) as strategy:
    assert strategy.num_replicas_in_sync == size
with tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"]) as strategy:
    assert strategy.num_replicas_in_sync == size
    assert isinstance(strategy, tf.distribute.Strategy)

os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 7}}'
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
assert isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver)
assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", rank, "grpc")
assert isinstance(resolver.cluster_spec(), tf.train.ClusterSpec)
assert resolver.cluster_spec().num_tasks("worker") == size
assert '"index": 7' not in os.environ["TF_CONFIG"]
assert resolver.master().startswith("grpc://")

assert tf.distribute.Server.create_local_server().target.startswith("grpc://localhost:")
later = tf.distribute.Server({"worker": ["a:1"], "ps": ["b:2"]}, job_name="ps", task_index=0)
later.start()
assert later.target == "grpc://b:2"
try:
    tf.distribute.Server(resolver.cluster_spec(), job_name="worker", task_index=rank)
except ValueError as error:
    sys.stdout.write(f"{error}\n")
