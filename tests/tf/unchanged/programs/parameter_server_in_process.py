"""A program that has all roles in its own process, as the guide to parameter servers shows it."""

import socket

import tensorflow as tf

NUM_WORKERS, NUM_PS = 3, 2


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def make_cluster():
    jobs = {
        "worker": [f"localhost:{free_port()}" for _ in range(NUM_WORKERS)],
        "ps": [f"localhost:{free_port()}" for _ in range(NUM_PS)],
    }
    spec = tf.train.ClusterSpec(jobs)
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = NUM_WORKERS + 1
    for job, addresses in jobs.items():
        for index, _ in enumerate(addresses):
            tf.distribute.Server(
                spec, job_name=job, task_index=index, config=config, protocol="grpc"
            )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")


strategy = tf.distribute.ParameterServerStrategy(make_cluster())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(0.0)


def dataset_fn(context):
    data = tf.data.Dataset.from_tensor_slices(tf.range(1.0, 9.0)).repeat()
    return (
        strategy.experimental_distribute_dataset(data.batch(4))
        if context is None
        else data.batch(4)
    )


@tf.function
def worker_fn(iterator):
    def replica_fn(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * batch - 3.0 * batch) ** 2)
        weight.assign_sub(0.005 * tape.gradient(loss, weight))
        return loss

    losses = strategy.run(replica_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)


iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for _ in range(3):
    losses = [coordinator.schedule(worker_fn, args=(iterator,)) for _ in range(20)]
    coordinator.join()
print("weight", round(float(weight), 2), flush=True)
print("loss", round(float(losses[-1].fetch()), 2), flush=True)
