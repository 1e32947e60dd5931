"""Train by a loop under MultiWorkerMirroredStrategy that saves and goes on by step in an epoch."""

import json
import os

import keras
import numpy as np
import tensorflow as tf
from small_data import CLASSES, SIDE, images

EPOCHS, STEPS = 3, 4
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
global_batch_size = 24 // num_workers * num_workers

strategy = tf.distribute.MultiWorkerMirroredStrategy(
    communication_options=tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CollectiveCommunication.RING
    )
)


def dataset_fn(context):
    pixels, labels = images()
    data = tf.data.Dataset.from_tensor_slices((pixels / np.float32(255), labels))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(global_batch_size)).repeat()


keras.utils.set_random_seed(13)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((SIDE, SIDE, 1)), keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    )
    data = strategy.distribute_datasets_from_function(dataset_fn)
    optimizer = keras.optimizers.RMSprop(learning_rate=0.01)
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_batch = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=None
            )(y, predictions)
            loss = tf.nn.compute_average_loss(per_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(y, predictions)
        return loss

    losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


resolver = strategy.cluster_resolver
task_type, task_id = resolver.task_type, resolver.task_id
folder = "./checkpoints" if not task_id else f"./checkpoints/workertemp_{task_id}"
epoch = tf.Variable(tf.constant(0, dtype=tf.int64), name="epoch")
step = tf.Variable(tf.constant(0, dtype=tf.int64), name="step_in_epoch")
checkpoint = tf.train.Checkpoint(model=model, epoch=epoch, step_in_epoch=step)
manager = tf.train.CheckpointManager(checkpoint, directory=folder, max_to_keep=1)
if latest := tf.train.latest_checkpoint("./checkpoints"):
    checkpoint.restore(latest)

lines = []
while epoch.numpy() < EPOCHS:
    iterator, total = iter(data), 0.0
    while step.numpy() < STEPS:
        total += train_step(iterator)
        step.assign_add(1)
    lines.append([float(total) / STEPS, float(accuracy.result())])
    accuracy.reset_state()
    manager.save()
    epoch.assign_add(1)
    step.assign(0)
if task_id:
    tf.io.gfile.rmtree(folder)
RESULTS = {"epochs": [v for line in lines for v in line]}
