"""`HorovodAllReduce`: let Horovod combine the values of a strategy's replicas."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow.graph.horovod import installed
from mpistrat.tensorflow.graph.horovod.bridge import HorovodBridge, why_not_on
from mpistrat.tensorflow.graph.horovod.tuning import Tuning

__all__ = ["HorovodAllReduce"]


class HorovodAllReduce(tf.distribute.CrossDeviceOps):  # type: ignore[misc]
    """Combine values over ranks by Horovod's operations, as ``cross_device_ops=`` of a strategy.

    Sums, means, gathers and broadcasts of the strategy, its gradients among them, go through
    Horovod: NCCL on GPUs where it was built with that, else MPI. Before each transfer the ranks
    compare what they call, as they do without Horovod, so that mistakes are errors on all ranks.

    Parameters
    ----------
    fusion_bytes
        Size of Horovod's fusion buffer; default HOROVOD_FUSION_THRESHOLD, or Horovod's 128 MiB.
    cycle_time_ms
        Milliseconds between Horovod's rounds; default HOROVOD_CYCLE_TIME, or Horovod's 1 ms. With
        0 short transfers are some 4 times faster, and Horovod's thread keeps a core busy.

    Raises
    ------
    UsageError
        A value is negative or no number.
    BackendUnavailableError
        Horovod is not installed for this TensorFlow and MPI library; says how to get it.

    Notes
    -----
    Horovod takes both values when it is initialised, which the first strategy does. Sums of
    float16 are Horovod's own, rounded after each addition. There is no way into functions that XLA
    compiles.
    """

    def __init__(
        self, fusion_bytes: int | None = None, cycle_time_ms: float | None = None
    ) -> None:
        super().__init__()
        if fusion_bytes is not None and not _is_number(fusion_bytes, Integral):
            raise UsageError(f"fusion_bytes={fusion_bytes!r}; expected an int of 0 or more")
        if cycle_time_ms is not None and not _is_number(cycle_time_ms, Real):
            raise UsageError(f"cycle_time_ms={cycle_time_ms!r}; expected a number of 0 or more")
        installed.load()
        self._tuning = Tuning(fusion_bytes, cycle_time_ms)

    def make_bridge(
        self, communicator: Communicator, options: Any = None, gpu: str | None = None
    ) -> HorovodBridge:
        """Make the collectives of a strategy. **Collective.**"""
        return HorovodBridge(communicator, options, gpu, self._tuning)

    def why_not_on(self, gpus: Sequence[str]) -> str | None:
        """Return why Horovod does not combine tensors on GPUs there; None if it does."""
        return why_not_on(gpus)

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> NoReturn:
        """Raise: only strategies of this package have ranks to combine."""
        raise NotImplementedError(
            "HorovodAllReduce combines the ranks of mpistrat's strategies; give it to"
            " mpistrat.tensorflow.MirroredStrategy(cross_device_ops=...)"
        )

    batch_reduce_implementation = broadcast_implementation = reduce_implementation


def _is_number(value: Any, kind: type) -> bool:
    is_one = isinstance(value, kind) and not isinstance(value, bool)
    return is_one and 0 <= value < float("inf")
