"""`RankExtended`: mirrored variables on the devices of all ranks."""

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

__all__ = ["RankExtended"]


class RankExtended(OverRanks, private_api.MirroredExtended):  # type: ignore[misc]
    """TensorFlow's mirrored machinery for this rank's devices, joined over the ranks by MPI.

    Parameters
    ----------
    strategy
        The strategy of this `extended`.
    bridge
        The collectives between ranks.
    devices
        Of this rank, one replica each; equal in number on all ranks.
    cross_device_ops
        How values are combined over these devices; None for sums where the host is.
    cluster_resolver
        The strategy's cluster resolver.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        bridge: Bridge,
        devices: Sequence[str],
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
        cluster_resolver: Any = None,
    ) -> None:
        self.bridge = bridge
        super().__init__(strategy, devices=list(devices))
        self._cluster_resolver = cluster_resolver
        self._cross_device_ops = RankAllReduce(bridge, cross_device_ops)
        self.name_task()

    def _use_merge_call(self) -> bool:
        return True  # MPI combines what all replicas of a rank have handed in

    # ----------------------------------------------------------------------------- variables

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        self.bridge.require_open()
        variable = super()._create_variable(next_creator, **kwargs)
        self.number(variable, kwargs.get("name"))
        return read_alike(variable) if self.bridge.size > 1 else variable

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: str, primary_var: Any, **kwargs: Any
    ) -> Any:
        # TensorFlow gives the later replicas of a rank the value of its first one.
        if replica_id > 0 or self.bridge.size == 1:
            return super()._get_variable_creator_initial_value(
                replica_id, device, primary_var, **kwargs
            )
        value, dtype, name = kwargs["initial_value"], kwargs.get("dtype"), kwargs.get("name")
        return first_value(self.bridge, value, dtype, device, name)
