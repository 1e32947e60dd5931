"""A program with a process for each role, told by TF_CONFIG: coordinator, loop and Keras's fit."""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in {"worker", "ps"}:
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()

if resolver.task_type == "evaluator":
    print("evaluates", resolver.task_id, flush=True)
    sys.exit()

# Only the chief comes here: `join` does not return.
num_ps = len(resolver.cluster_spec().as_dict().get("ps", []))
strategy = tf.distribute.ParameterServerStrategy(
    resolver,
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(num_ps),
)
assert resolver.task_type == "chief", resolver.task_type
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)


@tf.function
def add(value):
    total.assign_add(value)
    return value * 2.0


results = [coordinator.schedule(add, args=(tf.constant(float(i)),)) for i in range(10)]
coordinator.join()
doubled = sum(float(one.fetch()) for one in results)

x = np.random.default_rng(0).normal(size=(512, 3)).astype("float32")
y = x.sum(axis=1, keepdims=True)
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(512, seed=1).repeat().batch(32)
history = model.fit(data, epochs=3, steps_per_epoch=16, verbose=0)
print("total", float(total), "doubled", doubled, flush=True)
print("learns", history.history["loss"][-1] < 0.1 * history.history["loss"][0] + 1e-3, flush=True)
