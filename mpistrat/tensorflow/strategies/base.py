"""`RankStrategy`: the base of strategies with replicas on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.cluster.devices.names import named_devices
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow import repeated_warnings, shared_files, thread_pools
from mpistrat.tensorflow.data import seeds
from mpistrat.tensorflow.graph import gpu_collectives
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.keras import hooks as keras_hooks
from mpistrat.tensorflow.keras import legacy as keras_legacy
from mpistrat.tensorflow.strategies import gpu_binding, gpus
from mpistrat.tensorflow.strategies.extended import RankExtended
from mpistrat.tensorflow.strategies.gpus import WhyNot
from mpistrat.tensorflow.strategies.older_members import OlderMembers
from mpistrat.tensorflow.strategies.strategy_members import RankMembers

__all__ = ["RankStrategy", "agree"]


class RankStrategy(OlderMembers, RankMembers, tf.distribute.Strategy):  # type: ignore[misc]
    """A strategy with one replica for each device of each rank.

    Parameters
    ----------
    devices
        This rank's devices; equal in number on all ranks; default the GPUs bound to it, or one
        CPU.
    cross_device_ops, options
        How values are combined over replicas.
    comm, backend
        As of `Communicator`.
    cluster_resolver
        The strategy's cluster resolver.

    Notes
    -----
    **Collective** over `comm`.
    """

    _collective_key_base = 0  # MirroredExtended asks for it

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
        *,
        comm: Any = None,
        backend: str = "auto",
        options: Any = None,
        cluster_resolver: Any = None,
    ) -> None:
        communicator = Communicator(comm, backend)
        if communicator.size > 1:
            # Before TensorFlow is asked for its devices, which starts it.
            thread_pools.share_cores(communicator)
            bound = gpu_binding.bind_gpus(communicator, devices)
            gpu_binding.let_memory_grow()
            repeated_warnings.leave_to_first_rank(communicator)
        else:
            bound = None
        with communicator.checking():
            _check(cross_device_ops, options)
            names = (
                bound or self._default_devices()
                if devices is None
                else _local_devices(devices, communicator.rank)
            )
        # After `checking`: a rank with a wrong argument has told the others by now.
        carrier = _carrier(cross_device_ops, communicator.backend)
        local = None if carrier is cross_device_ops else cross_device_ops
        if carrier is None:
            bridge = Bridge(communicator, options, agree(communicator, names))
        else:
            gpu = agree(communicator, names, carrier.why_not_on)
            bridge = carrier.make_bridge(communicator, options, gpu)
        super().__init__(
            self._make_extended(
                bridge, names, cross_device_ops=local, cluster_resolver=cluster_resolver
            )
        )
        # A program that never enters the scope is told so by `fit`.
        keras_hooks.install()
        keras_legacy.install()

    def _default_devices(self) -> list[str]:
        """Return this process's GPUs, or one CPU."""
        gpus = tf.config.list_logical_devices("GPU")
        return [device.name for device in gpus] or ["CPU:0"]

    def _make_extended(self, bridge: Bridge, devices: Sequence[str], **how: Any) -> Any:
        """Make the strategy's `extended`."""
        return RankExtended(self, bridge, devices, **how)

    def close(self) -> None:
        """End the strategy, once all ranks are here. Idempotent. **Collective.**"""
        self.communicator.close()
        self.extended.bridge.close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.communicator.end(error)
        self.extended.bridge.close(is_well=error is None)


def agree(
    communicator: Communicator, devices: Sequence[str], why_not: WhyNot = gpu_collectives.why_not
) -> str | None:
    """Prepare ranks with these local devices for one strategy. **Collective.**

    Parameters
    ----------
    communicator
        Of the ranks.
    devices
        The devices of this rank's replicas.
    why_not
        Returns why tensors on some GPUs cannot be combined there, or None if they can.

    Returns
    -------
    str or None
        The first of the devices, if all ranks are to combine tensors on GPUs there.
    """
    everyone = communicator.allgather_object(
        gpus.of_this_rank(communicator.size, devices, why_not)
    )
    counts = [one.num_devices for one in everyone]
    if len(set(counts)) > 1:
        raise UsageError(
            f"numbers of local devices by rank: {counts}; TensorFlow's replicas have to be"
            " equally many on all ranks: give devices= of equal length"
        )
    seeds.agree_on_seed(communicator)
    if communicator.size > 1:
        shared_files.install(communicator)
    return devices[0] if gpus.are_used(everyone) else None


def _carrier(*given: Any) -> Any:
    """Return the cross-device operations or the backend that carry TensorFlow's tensors."""
    return next((one for one in given if hasattr(one, "make_bridge")), None)


def _check(cross_device_ops: Any, options: Any) -> None:
    if cross_device_ops is not None and not isinstance(
        cross_device_ops, tf.distribute.CrossDeviceOps
    ):
        raise UsageError(
            f"cross_device_ops={cross_device_ops!r}; expected a tf.distribute.CrossDeviceOps,"
            " such as tf.distribute.ReductionToOneDevice()"
        )
    kind = type(tf.distribute.experimental.CommunicationOptions())  # the public name makes another
    if options is not None and not isinstance(options, kind):
        raise UsageError(
            f"communication_options={options!r}; expected"
            " tf.distribute.experimental.CommunicationOptions(...)"
        )


def _local_devices(devices: Sequence[str], rank: int) -> list[str]:
    """Return this rank's devices as TensorFlow names them; raise if it has others."""
    names = [name.split("/")[-1].removeprefix("device:") for name in named_devices(devices, rank)]
    known = [device.name.split("device:")[-1] for device in tf.config.list_logical_devices()]
    if not set(names) <= set(known):
        raise UsageError(f"devices={names}: TensorFlow has {', '.join(known)} in this process")
    return names
