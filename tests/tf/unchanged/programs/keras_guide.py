"""Fit in the strategy's scope, with checkpoints of epochs that a second run goes on from."""

import os

import keras
import numpy as np
import tensorflow as tf

checkpoint_dir = "./ckpt"
if not os.path.exists(checkpoint_dir):
    os.makedirs(checkpoint_dir)


def get_compiled_model():
    keras.utils.set_random_seed(2)
    inputs = keras.Input(shape=(6,))
    x = keras.layers.Dense(16, activation="relu")(inputs)
    outputs = keras.layers.Dense(3)(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    return model


def get_dataset(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 6)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, np.argmax(x[:, :3], axis=1))).batch(16)


def make_or_restore_model():
    checkpoints = [f"{checkpoint_dir}/{name}" for name in os.listdir(checkpoint_dir)]
    if checkpoints:
        latest = max(checkpoints, key=os.path.getctime)
        print("restored from", latest)
        return keras.models.load_model(latest)
    return get_compiled_model()


def run_training(epochs):
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = make_or_restore_model()
        callbacks = [
            keras.callbacks.ModelCheckpoint(
                filepath=checkpoint_dir + "/ckpt-{epoch}.keras", save_freq="epoch"
            )
        ]
        history = model.fit(
            get_dataset(0),
            epochs=epochs,
            callbacks=callbacks,
            validation_data=get_dataset(1),
            verbose=0,
        )
    return history.history, model.evaluate(get_dataset(2), verbose=0)


first, _ = run_training(epochs=2)
second, evaluated = run_training(epochs=1)
RESULTS = {
    "losses": first["loss"] + second["loss"],
    "validation": first["val_loss"] + second["val_loss"],
    "evaluated": evaluated,
}
