"""Mirrored strategies with TensorFlow's arguments only: MPI says which ranks there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import mpistrat.tensorflow
from mpistrat.cluster.resolvers.tf_config_of_ranks import current
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.unchanged_programs.roles import workers_resolver

__all__ = [
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "OlderMultiWorkerMirroredStrategy",
]

_LOG = get_logger(__name__)
_AUTO = distribute.experimental.CommunicationImplementation.AUTO


class MirroredStrategy(mpistrat.tensorflow.MirroredStrategy):
    """As `mpistrat.tensorflow.MirroredStrategy`; a list of a machine's GPUs is dealt out.

    Parameters
    ----------
    devices
        As the program for one process names them. Several GPUs, on a machine with several ranks,
        are left out: each rank takes those that are bound to it. Of more CPUs than TensorFlow has
        it takes the first.
    cross_device_ops
        See there.

    Notes
    -----
    **Collective.**
    """

    def __init__(self, devices: Sequence[str] | None = None, cross_device_ops: Any = None) -> None:
        super().__init__(_own_devices(devices), cross_device_ops)


class MultiWorkerMirroredStrategy(mpistrat.tensorflow.MultiWorkerMirroredStrategy):
    """As `mpistrat.tensorflow.MultiWorkerMirroredStrategy`, whose workers are MPI's.

    Parameters
    ----------
    cluster_resolver
        The program's own; replaced unless it is MPI's. So is TF_CONFIG.
    communication_options
        See there.

    Notes
    -----
    **Collective.**
    """

    def __init__(self, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        super().__init__(workers_resolver(cluster_resolver), communication_options)


class OlderMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy):
    """The same with the arguments of ``tf.distribute.experimental``."""

    def __init__(self, communication: Any = _AUTO, cluster_resolver: Any = None) -> None:
        options = distribute.experimental.CommunicationOptions(implementation=communication)
        super().__init__(cluster_resolver, options)


OlderMultiWorkerMirroredStrategy.__name__ = "MultiWorkerMirroredStrategy"


def _own_devices(devices: Sequence[str] | None) -> Sequence[str] | None:
    """Return the devices that a rank is to use; None for those bound to it. **Local.**"""
    if devices is not None and _are_missing_cpus(devices):
        text = (
            f"devices={list(devices)} are more CPUs than TensorFlow has: each rank uses the first"
        )
        warn_once(_LOG, "CPUs left out", text)
        return ["/cpu:0"]
    if devices is None or current().topology.local_size == 1:
        return devices
    if len(devices) < 2 or not all("gpu" in str(device).lower() for device in devices):
        return devices
    text = (
        f"devices={list(devices)} are those of a machine that now has"
        f" {current().topology.local_size} ranks: each rank uses the GPUs that are bound to it"
    )
    warn_once(_LOG, "devices dealt out", text)
    return None


def _are_missing_cpus(devices: Sequence[str]) -> bool:
    """Tell whether CPUs are named that TensorFlow lacks; it would put all on the one it has."""
    are_cpus = all("cpu" in str(device).lower() for device in devices)
    return are_cpus and len(devices) > len(tf.config.list_logical_devices("CPU"))
