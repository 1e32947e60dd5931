"""Distribute data in each way that there is: data sets, functions, values, specs, iterators."""

import tensorflow as tf

GLOBAL_BATCH_SIZE, ROWS = 12, 48

strategy = tf.distribute.MirroredStrategy()
data = tf.data.Dataset.range(ROWS).map(lambda row: tf.cast(row, tf.float32))

with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def step(batch):
    local = strategy.run(tf.reduce_sum, args=(batch,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, local, axis=None)


def summed(distributed):
    return [float(step(batch)) for batch in distributed]


def dataset_fn(context):
    batch_size = context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)
    mine = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return mine.batch(batch_size).prefetch(2)


@tf.function
def whole_epoch(iterator):
    found = 0.0
    for _ in tf.range(ROWS // GLOBAL_BATCH_SIZE):
        found += step(next(iterator))
    return found


def value_fn(context):
    return tf.constant(float(context.num_replicas_in_sync))


from_dataset = strategy.experimental_distribute_dataset(data.batch(GLOBAL_BATCH_SIZE))
from_function = strategy.distribute_datasets_from_function(dataset_fn)
values = strategy.experimental_distribute_values_from_function(value_fn)
mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None)
gathered = strategy.gather(next(iter(from_dataset)), axis=0)
strategy.run(lambda rows: total.assign_add(tf.reduce_sum(rows)), args=(next(iter(from_dataset)),))
RESULTS = {
    "from a data set": summed(from_dataset),
    "from a function": [sum(summed(from_function))],
    "in a loop of a function": [float(whole_epoch(iter(from_dataset)))],
    "gathered": gathered.numpy().tolist(),
    "mean over replicas": [float(mean) / strategy.num_replicas_in_sync],
    "variable": [float(total.numpy())],
}
