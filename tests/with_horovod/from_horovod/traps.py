"""A program with the traps of Horovod under Keras 3: each function ends as its decorator says.

The name of a function begins with the lint's rule for it; what begins with ``fine`` works, and the
lint leaves it alone. Started by mpirun on two ranks it runs all of them, and prints as JSON how
each ended.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import horovod.keras as hvd_plain_keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import numpy as np
import tensorflow as tf
from mpi4py import MPI

DIFFER, AGREE = "ranks differ", "ranks agree"
TRAPS: dict[str, tuple[str, Callable[[], Any]]] = {}


def ends(outcome: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Note how a function ends: an error's name, or the text of what it returns."""

    def note(function: Callable[[], Any]) -> Callable[[], Any]:
        TRAPS[function.__name__] = (outcome, function)
        return function

    return note


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(hvd.rank())
    return random.normal(size=(32, 4)).astype("f4"), random.normal(size=(32, 3)).astype("f4")


def network() -> keras.Model:
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def compared(array: Any) -> str:
    first, *others = MPI.COMM_WORLD.allgather(np.asarray(array))
    return AGREE if all(np.array_equal(first, one) for one in others) else DIFFER


def fit(optimizer: Any, *callbacks: Any) -> str:
    model = network()
    model.compile(optimizer, "mse")
    model.fit(*data(), batch_size=8, epochs=2, verbose=0, callbacks=list(callbacks))
    return compared(model.get_weights()[0])


def loss_of(model: keras.Model) -> tuple[tf.GradientTape, tf.Tensor]:
    x, y = data()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    return tape, loss


@ends(DIFFER)
def keras_optimizer__fit() -> str:
    return fit(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)))


@ends(DIFFER)
def keras_optimizer__of_horovod_tensorflow() -> str:
    return fit(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)))


@ends(DIFFER)
def keras_optimizer__of_horovod_keras() -> str:
    return fit(hvd_plain_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)))


@ends(DIFFER)
def keras_optimizer__loop() -> str:
    model = network()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    tape, loss = loss_of(model)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return compared(model.get_weights()[0])


@ends("AttributeError")
def keras_optimizer__accumulating() -> str:
    sgd = keras.optimizers.SGD(0.1)
    return fit(hvd_keras.DistributedOptimizer(sgd, backward_passes_per_step=2))


@ends("SGD of keras.src.optimizers.sgd")
def keras_optimizer__load_model() -> str:
    model = network()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(*data(), verbose=0)
    model.save(f"model_{hvd.rank()}.keras")
    loaded = hvd_keras.load_model(f"model_{hvd.rank()}.keras")
    found = type(loaded.optimizer)
    return f"{found.__name__} of {found.__module__}"


@ends("AttributeError")
def keras_callbacks__broadcast() -> str:
    return fit("sgd", hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0))


@ends("AttributeError")
def keras_callbacks__metrics() -> str:
    return fit("sgd", hvd_keras.callbacks.MetricAverageCallback())


@ends("AttributeError")
def keras_callbacks__schedule() -> str:
    return fit("sgd", hvd_keras.callbacks.LearningRateScheduleCallback(0.1, 0.5))


@ends("AttributeError")
def keras_callbacks__warmup() -> str:
    return fit("sgd", hvd_keras.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=1))


@ends("AttributeError")
def keras_callbacks__best() -> str:
    return fit("sgd", hvd_keras.callbacks.BestModelCheckpoint())


@ends("ValueError")
def keras_layers__horovods() -> object:
    return hvd.SyncBatchNormalization()


@ends(DIFFER)
def keras_layers__synchronized() -> str:
    layer = keras.layers.BatchNormalization(synchronized=True)
    layer(data()[0], training=True)
    return compared(layer.moving_mean)


@ends("AttributeError")
def keras_variables__tape() -> object:
    model = network()
    tape, loss = loss_of(model)
    tape = hvd.DistributedGradientTape(tape)
    return tape.gradient(loss, model.trainable_variables)


@ends(AGREE)
def fine__tape_of_tensorflows_variables() -> str:
    weight = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * weight * (hvd.rank() + 1.0))
    return compared(hvd.DistributedGradientTape(tape).gradient(loss, [weight])[0])


@ends("AttributeError")
def keras_variables__broadcast() -> None:
    hvd.broadcast_variables(network().variables, root_rank=0)


@ends("AttributeError")
def keras_variables__broadcast_in_place() -> None:
    hvd.broadcast_variables(network().variables, root_rank=0, inplace=True)


@ends(AGREE)
def fine__broadcast_in_a_graph() -> str:
    model = network()
    model.layers[0].kernel.assign_add(np.full((4, 3), hvd.rank()))

    @tf.function
    def broadcast() -> None:
        hvd.broadcast_variables(model.variables, root_rank=0)

    broadcast()
    return compared(model.get_weights()[0])


@ends("TypeError")
def keras_variables__called() -> None:
    optimizer = keras.optimizers.SGD(0.1)
    hvd.broadcast_variables(optimizer.variables(), root_rank=0)


@ends("RuntimeError")
def keras_variables__global() -> None:
    hvd_keras.broadcast_global_variables(0)


@ends("InvalidArgumentError")
def dtypes__bfloat16() -> object:
    return hvd.allreduce(tf.cast([1.0], tf.bfloat16))


@ends("InvalidArgumentError")
def dtypes__complex() -> object:
    return hvd.broadcast(tf.complex([1.0], [2.0]), 0)


@ends("InvalidArgumentError")
def dtypes__bool() -> object:
    return hvd.allreduce(tf.constant([True]), op=hvd.Max)


@ends("AttributeError")
def dtypes__number() -> object:
    return hvd.allreduce(1.0)


@ends("[1 1]")
def dtypes__mean_of_integers() -> str:
    x = tf.cast([1, 1 + hvd.rank()], tf.int32)
    return str(hvd.allreduce(x).numpy())


@ends("[ True]")
def fine__moved_bool() -> str:
    return str(hvd.broadcast(tf.constant([True]), 0).numpy())


@ends("InvalidArgumentError")
def compiled_functions__function() -> object:
    @tf.function(jit_compile=True)
    def total(x: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(x)

    return total(tf.ones(2))


@ends("AttributeError")
def captured_tensors__eager() -> object:
    constant = tf.ones(2)
    return tf.function(lambda: hvd.allreduce(constant))()


@ends("AttributeError")
def captured_tensors__numpy() -> object:
    array = np.ones(2)
    return tf.function(lambda: hvd.allreduce(array))()


@ends("[1. 1.]")
def fine__captured_with_a_name() -> str:
    constant = tf.ones(2)
    return str(tf.function(lambda: hvd.allreduce(constant, name="constant"))().numpy())


@ends("[11.] [11.]")
def some_ranks__order() -> str:
    one, ten = tf.constant([1.0]), tf.constant([10.0])
    if hvd.rank() == 0:
        two = hvd.allreduce(one, op=hvd.Sum)
        twenty = hvd.allreduce(ten, op=hvd.Sum)
    else:
        twenty = hvd.allreduce(ten, op=hvd.Sum)
        two = hvd.allreduce(one, op=hvd.Sum)
    return f"{two.numpy()} {twenty.numpy()}"


@ends("waits for nobody")
def unused_results__barrier() -> str:
    @tf.function
    def barrier(x: tf.Tensor) -> tf.Tensor:
        hvd.allreduce(x, name="barrier")
        return x

    barrier(tf.ones(1))
    MPI.COMM_WORLD.Barrier()
    if hvd.rank() == 0:
        time.sleep(3)
    begin = time.monotonic()
    barrier(tf.ones(1))
    took = MPI.COMM_WORLD.allreduce(time.monotonic() - begin, op=MPI.MAX)
    return "waits for nobody" if took < 2 else f"waits for {took:.1f} s"


@ends("2.0")
def uneven_inputs__mean() -> str:
    for step in range(1 + hvd.rank()):
        mean = hvd.allreduce(tf.constant(4.0), name=f"uneven.{step}")
    hvd.join()
    return str(hvd.broadcast(mean, root_rank=1).numpy())


@ends("ValueError")
def process_sets__added() -> object:
    return hvd.add_process_set([0])


@ends("TypeError")
def elastic__state() -> object:
    model = network()
    model.compile("sgd", "mse")
    return hvd_keras.elastic.KerasState(model, batch=0)


@ends("2.0")
def fine__state_of_variables() -> str:
    state = hvd.elastic.TensorFlowState([tf.Variable(2.0)], step=0)
    state.sync()
    return str(state.variables[0].numpy())


@ends("ValueError")
def timeline__started() -> None:
    hvd.start_timeline("timeline.json")


@ends("2")
def start_and_end__second_start() -> str:
    hvd.size()
    hvd.init()
    hvd.init(comm=MPI.COMM_SELF)
    return str(hvd.size())


@ends("UnknownError | ")
def some_ranks__branch() -> str:
    """End at HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; without it rank 0 would wait until 1 ends."""
    if hvd.rank() == 0:
        return str(hvd.allreduce(tf.ones(1), name="alone"))
    time.sleep(15)
    return ""


def ended(function: Callable[[], Any]) -> str:
    try:
        return str(function())
    except Exception as error:  # noqa: BLE001 - the tests say which
        return type(error).__name__


def main() -> None:
    """Run all, the one that ends Horovod last."""
    hvd.init()
    found = {name: ended(function) for name, (_, function) in TRAPS.items()}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    MPI.COMM_WORLD.Barrier()  # MPI is mpi4py's, and runs on after Horovod


if __name__ == "__main__":
    main()
