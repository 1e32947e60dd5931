"""Train with Keras's fit: callbacks, a rate that falls, weights of epochs, a saved model."""

import os

import keras
import tensorflow as tf
from small_data import CLASSES, SIDE, images

BATCH_SIZE, EPOCHS = 24, 3

strategy = tf.distribute.MirroredStrategy()
print(f"Number of devices: {strategy.num_replicas_in_sync}")


def scale(image, label):
    return tf.cast(image, tf.float32) / 255, label


pixels, labels = images()
train = tf.data.Dataset.from_tensor_slices((pixels, labels)).map(scale).cache()
train = train.shuffle(200, seed=3).batch(BATCH_SIZE)
evaluation = tf.data.Dataset.from_tensor_slices(images(1)).map(scale).batch(BATCH_SIZE)

keras.utils.set_random_seed(7)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(learning_rate=0.01),
        metrics=["accuracy"],
    )

CHECKPOINTS = "./training_checkpoints"


def decay(epoch):
    return 0.01 if epoch < 2 else 0.001


class ShowRate(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"learning rate of epoch {epoch + 1}: {model.optimizer.learning_rate.numpy():.4f}")


history = model.fit(
    train,
    epochs=EPOCHS,
    verbose=0,
    callbacks=[
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.ModelCheckpoint(
            os.path.join(CHECKPOINTS, "ckpt_{epoch}.weights.h5"), save_weights_only=True
        ),
        keras.callbacks.LearningRateScheduler(decay),
        ShowRate(),
    ],
)
model.load_weights(os.path.join(CHECKPOINTS, f"ckpt_{EPOCHS}.weights.h5"))
loss, accuracy = model.evaluate(evaluation, verbose=0)

model.save("saved.keras")
alone = keras.models.load_model("saved.keras")
with strategy.scope():
    replicated = keras.models.load_model("saved.keras")
RESULTS = {
    "losses": history.history["loss"],
    "evaluated": [loss, accuracy],
    "loaded": alone.evaluate(evaluation, verbose=0),
    "replicated": replicated.evaluate(evaluation, verbose=0),
    "rows": model.predict(evaluation, verbose=0)[:3].ravel().tolist(),
}
