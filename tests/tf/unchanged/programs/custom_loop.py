"""Train by a loop of one's own: distributed data, a step in run, metrics, checkpoints."""

import keras
import numpy as np
import tensorflow as tf
from small_data import CLASSES, SIDE, images

GLOBAL_BATCH_SIZE, EPOCHS = 24, 3

strategy = tf.distribute.MirroredStrategy()


def dataset(seed):
    pixels, labels = images(seed)
    rows = (pixels / np.float32(255), labels)
    return tf.data.Dataset.from_tensor_slices(rows).batch(GLOBAL_BATCH_SIZE)


train_data = strategy.experimental_distribute_dataset(dataset(0))
test_data = strategy.experimental_distribute_dataset(dataset(1))


def create_model():
    keras.utils.set_random_seed(5)
    regularizer = keras.regularizers.L2(1e-4)
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu", kernel_regularizer=regularizer),
            keras.layers.Dense(CLASSES, kernel_regularizer=regularizer),
        ]
    )


with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    test_loss = keras.metrics.Mean(name="test_loss")
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = create_model()
    optimizer = keras.optimizers.Adam(learning_rate=0.01)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def compute_loss(labels, predictions, model_losses):
    loss = tf.nn.compute_average_loss(loss_object(labels, predictions))
    return loss + tf.nn.scale_regularization_loss(tf.add_n(model_losses))


def train_step(inputs):
    images_, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images_, training=True)
        loss = compute_loss(labels, predictions, model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_accuracy.update_state(labels, predictions)
    return loss


def evaluation_step(inputs):
    images_, labels = inputs
    predictions = model(images_, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def distributed_test(data):
    for inputs in data:
        strategy.run(evaluation_step, args=(inputs,))


lines = []
for epoch in range(EPOCHS):
    total, batches = 0.0, 0
    for inputs in train_data:
        total += distributed_train_step(inputs)
        batches += 1
    distributed_test(test_data)
    if epoch % 2 == 0:
        checkpoint.save("./checkpoints/ckpt")
    lines.append(
        [
            float(total) / batches,
            float(train_accuracy.result()),
            float(test_loss.result()),
            float(test_accuracy.result()),
        ]
    )
    print("epoch {}: loss {:.4f}, accuracy {:.3f}".format(epoch + 1, *lines[-1]))
    for metric in (test_loss, train_accuracy, test_accuracy):
        metric.reset_state()

again = create_model()
restored = tf.train.Checkpoint(optimizer=keras.optimizers.Adam(), model=again)
restored.restore(tf.train.latest_checkpoint("./checkpoints")).expect_partial()
found = again(images(1)[0][:4] / np.float32(255)).numpy()
RESULTS = {"epochs": [v for line in lines for v in line], "restored": found.ravel().tolist()}
