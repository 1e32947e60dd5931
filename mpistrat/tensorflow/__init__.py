"""The strategies of tf.distribute with MPI ranks as replicas, for TensorFlow and Keras.

``mpistrat.tensorflow.X`` is ``tf.distribute.X``: what is not ours is TensorFlow's own, so that
``import mpistrat.tensorflow as distribute`` is the only line that a program has to change. If it
says ``tf.distribute`` in many places, the line ``tf.distribute = mpistrat.tensorflow`` is enough.
"""

from __future__ import annotations

from typing import Any

from mpistrat.tensorflow import quiet_start  # noqa: F401 - it imports TensorFlow

# isort: split
from mpistrat.tensorflow import (
    cluster_resolver,
    coordinator,
    experimental,
    original_distribute,
)
from mpistrat.tensorflow.graph.horovod.all_reduce import HorovodAllReduce
from mpistrat.tensorflow.graph.horovod.collectives import HorovodCollectives
from mpistrat.tensorflow.servers.server import Server
from mpistrat.tensorflow.strategies.central_storage import CentralStorageStrategy
from mpistrat.tensorflow.strategies.mirrored import MirroredStrategy
from mpistrat.tensorflow.strategies.multi_worker import MultiWorkerMirroredStrategy
from mpistrat.tensorflow.strategies.one_device import OneDeviceStrategy
from mpistrat.tensorflow.strategies.parameter_server import ParameterServerStrategy
from mpistrat.tensorflow.tpu.strategy import TPUStrategy
from mpistrat.tensorflow.wrapped_strategy.strategy import TFBackedStrategy

__all__ = [
    "CentralStorageStrategy",
    "HorovodAllReduce",
    "HorovodCollectives",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "Server",
    "TFBackedStrategy",
    "TPUStrategy",
    "cluster_resolver",
    "coordinator",
    "experimental",
]


def __getattr__(name: str) -> Any:
    if name == "PreemptionCallback":  # it loads Keras
        from mpistrat.tensorflow.keras.preemption.callback import PreemptionCallback

        return PreemptionCallback
    return getattr(original_distribute.distribute, name)


def __dir__() -> list[str]:
    return sorted({*globals(), "PreemptionCallback", *dir(original_distribute.distribute)})
