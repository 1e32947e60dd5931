"""Let TensorFlow use the GPUs that are bound to this rank, and the memory there that it needs.

The ranks of a node may all see all of its GPUs. TensorFlow would take nearly all memory of each of
them, on every rank, when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import tensorflow as tf

from mpistrat.cluster.devices import gpu_order
from mpistrat.cluster.devices.gpu_binding import SeenGpus, bound_gpus
from mpistrat.cluster.topology import host_name
from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.graph import gpu_op

__all__ = ["bind_gpus", "let_memory_grow"]

_LOG = get_logger(__name__)


@dataclass(frozen=True)
class _Shown:
    """What one rank tells the others of TensorFlow's GPUs.

    Attributes
    ----------
    seen
        What CuPy sees of them.
    count
        How many there are.
    is_chosen
        Whether the program has chosen among them, or named devices.
    """

    seen: SeenGpus
    count: int
    is_chosen: bool


def bind_gpus(
    communicator: Communicator, devices: Sequence[str] | None = None
) -> list[str] | None:
    """Hide the GPUs of other ranks from TensorFlow; see `bound_gpus`. **Collective.**

    Parameters
    ----------
    communicator
        Over the ranks of the strategy.
    devices
        What the program has named on this rank; where one rank has named some, nothing is hidden.

    Returns
    -------
    list of str or None
        This rank's GPUs if it was too late to hide others; None: all that TensorFlow shows.

    Raises
    ------
    ClusterError
        On all ranks: they do not see the GPUs of their nodes alike.
    """
    everyone = communicator.allgather_object(_shown(devices is not None))
    if any(one.is_chosen for one in everyone) or not any(one.count for one in everyone):
        return None
    if any(len(one.seen.buses) != one.count for one in everyone):
        if max(one.count for one in everyone) > 1:
            text = (
                "each rank uses all GPUs that TensorFlow shows it: to deal them out to the ranks"
                " of a node needs CuPy; install mpistrat[cuda] or mpistrat[rocm]"
            )
            warn_once(_LOG, "GPUs not dealt out", text)
        return None
    seen = [one.seen for one in everyone]
    mine = bound_gpus(seen, communicator.rank)
    if communicator.rank == 0:
        gpu_order.warn_unused(seen)
    # Else CuPy goes back to GPU 0 after each call, and opens a context there, on every rank.
    gpu_op.use(mine[0])
    return _show_only(mine)


def _shown(is_named: bool) -> _Shown:
    gpus = tf.config.list_physical_devices("GPU")
    buses = gpu_devices.visible_buses() if gpus else ()
    is_chosen = is_named or tf.config.get_visible_devices("GPU") != gpus
    return _Shown(SeenGpus(host_name(), buses), len(gpus), is_chosen)


def _show_only(indices: tuple[int, ...]) -> list[str] | None:
    gpus = tf.config.list_physical_devices("GPU")
    if len(indices) == len(gpus):
        return None
    try:
        tf.config.set_visible_devices([gpus[index] for index in indices], "GPU")
    except RuntimeError:  # it has started
        text = (
            "TensorFlow, in use before the strategy, has opened all GPUs of the node on each rank,"
            " and their memory; make the strategy first, or begin with"
            " tf.config.set_visible_devices"
        )
        warn_once(_LOG, "GPUs too late", text)
        return [f"GPU:{index}" for index in indices]
    return None


def let_memory_grow() -> None:
    """Let TensorFlow take memory of its GPUs as it needs it: CuPy needs some, too. **Local.**"""
    # It has started, or the program has set a limit: then that is how it is.
    with suppress(RuntimeError, ValueError):
        for gpu in tf.config.get_visible_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
