"""`CentralExtended`: variables that a rank has once, whatever its number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.cross_device_ops import RankAllReduce
from mpistrat.tensorflow.graph.initial_values import first_value
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.strategies.extended_members import OverRanks
from mpistrat.tensorflow.strategies.first_replica_reads import read_alike

__all__ = ["CentralExtended"]


class CentralExtended(OverRanks, private_api.CentralExtended):  # type: ignore[misc]
    """TensorFlow's central storage of this rank's devices, joined over the ranks by MPI.

    Parameters
    ----------
    strategy
        The strategy of this `extended`.
    bridge
        The collectives between ranks.
    compute_devices
        Of this rank, one replica each; equal in number on all ranks.
    parameter_device
        Where variables are; None for the only GPU, or the CPU.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        bridge: Bridge,
        compute_devices: Sequence[str],
        parameter_device: str | None,
    ) -> None:
        self.bridge = bridge
        super().__init__(
            strategy, compute_devices=list(compute_devices), parameter_device=parameter_device
        )
        # TensorFlow's iterators look for this name. Without it they end with the first replica
        # that has no data left.
        self.experimental_enable_get_next_as_optional = True
        self._cross_device_ops = RankAllReduce(bridge)
        self.name_task()

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        self.bridge.require_open()
        if self.bridge.size > 1:
            initial, dtype = kwargs["initial_value"], kwargs.get("dtype")
            device, name = self.parameter_devices[0], kwargs.get("name")
            kwargs["initial_value"] = first_value(self.bridge, initial, dtype, device, name)
        if kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ:
            return self._create_on_read(next_creator, **kwargs)
        variable = super()._create_variable(next_creator, **kwargs)
        self.number(variable, kwargs.get("name"))
        return variable

    def _create_on_read(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Make a part for each replica, as for a metric; reading sums them."""

        def parts(**kwargs: Any) -> list[tf.Variable]:
            with tf.device(self.parameter_devices[0]):
                first = next_creator(**kwargs)
                # The initializer may draw numbers, and is a collective over ranks: it is called
                # once.
                kwargs["initial_value"] = first.read_value
                return [first, *(next_creator(**kwargs) for _ in self.worker_devices[1:])]

        found = private_api.distributed_variable(self._container_strategy(), parts, **kwargs)
        return read_alike(found) if self.bridge.size > 1 else found
