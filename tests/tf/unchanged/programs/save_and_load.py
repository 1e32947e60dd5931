"""Save and load models by Keras and as SavedModels, under one strategy and under another."""

import keras
import numpy as np
import tensorflow as tf
from small_data import CLASSES, SIDE, images

mirrored = tf.distribute.MirroredStrategy()
pixels, labels = images()
rows = pixels / np.float32(255)


def get_model(strategy):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((SIDE, SIDE, 1)),
                keras.layers.Flatten(),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ]
        )
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    return model


model = get_model(mirrored)
model.fit(rows, labels, batch_size=24, epochs=2, shuffle=False, verbose=0)
model.save("my_model.keras")
restored = keras.models.load_model("my_model.keras")
more = restored.fit(rows, labels, batch_size=24, epochs=1, shuffle=False, verbose=0)

another = tf.distribute.OneDeviceStrategy("/cpu:0")
with another.scope():
    on_one = keras.models.load_model("my_model.keras")
    history = on_one.fit(rows, labels, batch_size=24, epochs=1, shuffle=False, verbose=0)

model.export("exported")
with another.scope():
    loaded = tf.saved_model.load("exported")
    served = loaded.serve(rows[:4])


class Scale(tf.Module):
    def __init__(self):
        super().__init__()
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, values):
        return self.factor * values


with mirrored.scope():
    module = Scale()
tf.saved_model.save(module, "low_level", options=tf.saved_model.SaveOptions())
with mirrored.scope():
    again = tf.saved_model.load("low_level")
RESULTS = {
    "predicted": model.predict(rows[:4], verbose=0).ravel().tolist(),
    "served": served.numpy().ravel().tolist(),
    "trained on": more.history["loss"],
    "on one device": history.history["loss"],
    "low level": again(tf.constant([1.0, 3.0])).numpy().tolist(),
}
