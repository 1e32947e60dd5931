"""The example of the README for TensorFlow: Keras learns digits on all ranks."""

import keras
from sklearn.datasets import load_digits

import mpistrat.tensorflow as distribute  # in place of tf.distribute
from mpistrat.demo.cross_device_ops import chosen  # by the option --cross-device-ops

images, labels = load_digits(return_X_y=True)
images /= 16
train, test = slice(0, 1500), slice(1500, None)

strategy = distribute.MirroredStrategy(cross_device_ops=chosen())  # one replica on each rank
with strategy.scope():
    hidden = keras.layers.Dense(128, "relu")
    model = keras.Sequential([keras.Input((64,)), hidden, keras.layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

model.fit(images[train], labels[train], batch_size=50, epochs=12)  # rank 0 has a progress bar
loss, accuracy = model.evaluate(images[test], labels[test], verbose=0)
if strategy.is_chief:
    print(f"{strategy.num_replicas_in_sync} replicas, test accuracy {accuracy:.1%}")
