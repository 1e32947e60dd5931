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
    if devices is None:
        return None
    ranks_here = current().topology.local_size
    are_gpus = all("gpu" in str(device).lower() for device in devices)
    if ranks_here > 1 and len(devices) > 1 and are_gpus:
        text = (
            f"devices={list(devices)} are those of a machine that now has {ranks_here} ranks: each"
            " rank uses the GPUs that are bound to it"
        )
        warn_once(_LOG, "devices dealt out", text)
        return None
    missing = _missing(devices)
    if not missing:
        return devices
    text = f"devices={list(devices)} are {missing}: each rank uses its first CPU"
    warn_once(_LOG, "devices left out", text)
    return ["/cpu:0"]


def _missing(devices: Sequence[str]) -> str:
    """Say which devices TensorFlow lacks; it would put all replicas on the CPU it has."""
    kinds = {kind for device in devices for kind in ("cpu", "gpu") if kind in str(device).lower()}
    if kinds == {"cpu"} and len(devices) > len(tf.config.list_logical_devices("CPU")):
        return "more CPUs than TensorFlow has"
    if kinds == {"gpu"} and not tf.config.list_physical_devices("GPU"):
        return "GPUs, and TensorFlow has none here"
    return ""
