"""Train by MultiWorkerMirroredStrategy, whose workers the program names in TF_CONFIG itself."""

import json
import os

import keras
import numpy as np
import tensorflow as tf
from small_data import CLASSES, SIDE, images

os.environ.pop("TF_CONFIG", None)
tf_config = {
    "cluster": {"worker": ["localhost:12345", "localhost:23456"]},
    "task": {"type": "worker", "index": 0},
}
os.environ["TF_CONFIG"] = json.dumps(tf_config)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
num_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
per_worker_batch_size = 24 // num_workers
batch_size = per_worker_batch_size * num_workers

pixels, labels = images()
data = tf.data.Dataset.from_tensor_slices((pixels / np.float32(255), labels)).repeat()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = data.batch(batch_size).with_options(options)

keras.utils.set_random_seed(11)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
callbacks = [keras.callbacks.BackupAndRestore(backup_dir="./backup")]
history = model.fit(data, epochs=3, steps_per_epoch=4, verbose=0, callbacks=callbacks)


def is_chief(cluster_spec, task_type, task_id):
    return (
        task_type is None
        or task_type == "chief"
        or (task_type == "worker" and task_id == 0 and "chief" not in cluster_spec.as_dict())
    )


def write_filepath(path, spec, task_type, task_id):
    if is_chief(spec, task_type, task_id):
        return path
    folder = os.path.join(os.path.dirname(path), f"workertemp_{task_id}")
    tf.io.gfile.makedirs(folder)
    return os.path.join(folder, os.path.basename(path))


resolver = strategy.cluster_resolver
task = resolver.cluster_spec(), resolver.task_type, resolver.task_id
path = write_filepath("./keras-model/model.keras", *task)
if not os.path.exists(os.path.dirname(path)):
    os.makedirs(os.path.dirname(path))
model.save(path)
if not is_chief(*task):
    tf.io.gfile.rmtree(os.path.dirname(path))
rows = model.predict(pixels[:4] / np.float32(255), verbose=0)
RESULTS = {"losses": history.history["loss"], "rows": rows.ravel().tolist()}
ROLES = [is_chief(*task), num_workers, os.path.exists("./keras-model/model.keras")]
