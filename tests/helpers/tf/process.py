"""Configure TensorFlow and Keras in this process: logical CPUs, threads, default dtype."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["four_cpus", "keras_dtype"]


def four_cpus() -> None:
    """Give TensorFlow four logical CPUs and few threads; before it does anything. Idempotent."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(cpu) is not None:
        return
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)


def keras_dtype(name: str) -> None:
    """Have Keras's new layers in a dtype, whatever tests before in this process have set.

    Its ``set_floatx`` alone does nothing for layers once one has been made.
    """
    tf.keras.backend.set_floatx(name)
    tf.keras.config.set_dtype_policy(name)
