"""Horovod's operations on tensors, each behind the gate: `Operations` has those of one strategy.

All tensors of a call have one dtype, which Horovod carries (dtypes.py). The methods are
**Collective**, in eager code and in graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.tensorflow.graph.horovod.gated_call import GatedCall, Gates
from mpistrat.tensorflow.graph.horovod.session import Member

__all__ = ["Operations"]


class Operations:
    """The operations of one strategy.

    Parameters
    ----------
    communicator
        Of the strategy.
    member
        What it has of Horovod.
    timeout
        Seconds that a call may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(self, communicator: Communicator, member: Member, timeout: float | None) -> None:
        self._horovod, self._ranks, self._number = member.horovod, member.ranks, member.number
        self._set = member.process_set
        self._gates = Gates(communicator, timeout)
        self._calls: dict[Any, GatedCall] = {}  # kept: graphs refer to them

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], op: str, label: str | None = None
    ) -> list[tf.Tensor]:
        """Reduce each tensor over the ranks: "sum", "mean", "max", "min" or "prod"."""
        hvd = self._horovod
        kinds = {"sum": hvd.Sum, "mean": hvd.Average, "max": hvd.Max, "min": hvd.Min}
        kind = {**kinds, "prod": hvd.Product}[op]
        call = self._call(Signature("allreduce", op), tensors, label)
        how = {"op": kind, **self._named(f"allreduce_{op}_{len(tensors)}")}
        if len(tensors) == 1:
            return call(tensors, lambda: [hvd.allreduce(tensors[0], **how)])
        return call(tensors, lambda: list(hvd.grouped_allreduce(list(tensors), **how)))

    def all_gather(self, tensor: tf.Tensor, label: str | None = None) -> tf.Tensor:
        """Concatenate the ranks' tensors in their first dimension, whose lengths may differ."""
        call = self._call(Signature("allgather", axis=0), [tensor], label, is_ragged=True)
        how = self._named("allgather")
        return call([tensor], lambda: [self._horovod.allgather(tensor, **how)])[0]

    def broadcast(self, tensor: tf.Tensor, root: int = 0) -> tf.Tensor:
        """Return the root's tensor; the others' have its shape."""
        call = self._call(Signature("bcast", root=root), [tensor])
        how = {"root_rank": self._ranks[root], **self._named(f"bcast_{root}")}
        return call([tensor], lambda: [self._horovod.broadcast(tensor, **how)])[0]

    def reduce_scatter(self, tensor: tf.Tensor, op: str = "sum") -> tf.Tensor:
        """Reduce the ranks' tensors and return this rank's part of the first dimension.

        Its length is divided evenly; where that leaves a rest the first ranks get one row more.
        """
        hvd = self._horovod
        call = self._call(Signature("reduce_scatter", op, axis=0), [tensor])
        kind = {"sum": hvd.Sum, "mean": hvd.Average}[op]
        how = {"op": kind, **self._named(f"reduce_scatter_{op}")}
        return call([tensor], lambda: [hvd.reducescatter(tensor, **how)])[0]

    def all_to_all(self, tensor: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Send ``splits[i]`` rows of `tensor` to rank i; return what has come, and its splits."""
        call = self._call(Signature("alltoall", axis=0), [tensor], is_ragged=True)
        how = self._named("alltoall")
        received, lengths = call(
            [tensor], lambda: list(self._horovod.alltoall(tensor, splits, **how))
        )
        return received, lengths

    def _call(
        self,
        signature: Signature,
        tensors: Sequence[tf.Tensor],
        label: str | None = None,
        is_ragged: bool = False,
    ) -> GatedCall:
        # Horovod matches transfers by name, and those of graphs and of eager code have others.
        where = "in eager code" if tf.executing_eagerly() else "in a graph"
        made_for = f"by Horovod {where}" if label is None else f"by Horovod {where}, {label}"
        dtypes = tuple(tensor.dtype for tensor in tensors)
        key = signature, dtypes, made_for
        if key not in self._calls:
            self._calls[key] = GatedCall(self._gates, signature, dtypes, made_for, is_ragged)
        return self._calls[key]

    def _named(self, name: str) -> dict[str, Any]:
        """Return the arguments by which Horovod knows a transfer: one name on all ranks.

        One transfer is under way at a time, so that calls of one kind may share a name.
        """
        whole = f"mpistrat_{self._number}_{name}"
        return {"name": whole, "ignore_name_scope": True, "process_set": self._set}
