"""Horovod's operations on tensors, each behind the gate: `Operations` has those of one strategy.

All tensors of a call have one dtype, which Horovod carries (dtypes.py). The methods are
**Collective**, in eager code and in graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.tensorflow.graph.horovod.gated_call import GatedCall
from mpistrat.tensorflow.graph.horovod.gates import Gates
from mpistrat.tensorflow.graph.horovod.named_function import Transfer
from mpistrat.tensorflow.graph.horovod.session import Member
from mpistrat.tensorflow.private import graph as private_graph

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
        self._horovod, self._ranks, self._set = member.horovod, member.ranks, member.process_set
        self._gates = Gates(communicator, member.number, timeout)
        self._calls: dict[Any, GatedCall] = {}  # kept: graphs refer to them
        _refuse_vectorized_maps()

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], op: str, label: str | None = None
    ) -> list[tf.Tensor]:
        """Reduce each tensor over the ranks: "sum", "mean", "max", "min" or "prod"."""
        hvd = self._horovod
        kinds = {"sum": hvd.Sum, "mean": hvd.Average, "max": hvd.Max, "min": hvd.Min}
        kind = {**kinds, "prod": hvd.Product}[op]
        how = {"op": kind, **self._named(f"allreduce_{op}_{len(tensors)}")}

        def transfer(sent: list[tf.Tensor]) -> list[tf.Tensor]:
            if len(sent) == 1:
                return [hvd.allreduce(sent[0], **how)]
            return list(hvd.grouped_allreduce(sent, **how))

        return self._call(transfer, Signature("allreduce", op), tensors, label)

    def all_gather(self, tensor: tf.Tensor, label: str | None = None) -> tf.Tensor:
        """Concatenate the ranks' tensors in their first dimension, whose lengths may differ."""
        how = self._named("allgather")

        def transfer(sent: list[tf.Tensor]) -> list[tf.Tensor]:
            return [self._horovod.allgather(sent[0], **how)]

        signature = Signature("allgather", axis=0)
        return self._call(transfer, signature, [tensor], label, is_ragged=True)[0]

    def broadcast(self, tensor: tf.Tensor, root: int = 0) -> tf.Tensor:
        """Return the root's tensor; the others' have its shape."""
        how = {"root_rank": self._ranks[root], **self._named(f"bcast_{root}")}

        def transfer(sent: list[tf.Tensor]) -> list[tf.Tensor]:
            return [self._horovod.broadcast(sent[0], **how)]

        return self._call(transfer, Signature("bcast", root=root), [tensor])[0]

    def reduce_scatter(self, tensor: tf.Tensor, op: str = "sum") -> tf.Tensor:
        """Reduce the ranks' tensors and return this rank's part of the first dimension.

        Its length is divided evenly; where that leaves a rest the first ranks get one row more.
        """
        hvd = self._horovod
        kind = {"sum": hvd.Sum, "mean": hvd.Average}[op]
        how = {"op": kind, **self._named(f"reduce_scatter_{op}")}

        def transfer(sent: list[tf.Tensor]) -> list[tf.Tensor]:
            return [hvd.reducescatter(sent[0], **how)]

        return self._call(transfer, Signature("reduce_scatter", op, axis=0), [tensor])[0]

    def all_to_all(self, tensor: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Send ``splits[i]`` rows of `tensor` to rank i; return what has come, and its splits."""
        how = self._named("alltoall")

        def transfer(sent: list[tf.Tensor]) -> list[tf.Tensor]:
            return list(self._horovod.alltoall(sent[0], sent[1], **how))

        signature = Signature("alltoall", axis=0)
        received, lengths = self._call(transfer, signature, [tensor, splits], is_ragged=True)
        return received, lengths

    def _call(
        self,
        transfer: Transfer,
        signature: Signature,
        tensors: Sequence[tf.Tensor],
        label: str | None = None,
        is_ragged: bool = False,
    ) -> list[tf.Tensor]:
        made_for = "by Horovod" if label is None else f"by Horovod, {label}"
        dtypes = tuple(tensor.dtype for tensor in tensors)
        key = signature, dtypes, made_for
        call = self._calls.get(key)
        if call is None:
            call = GatedCall(self._gates, transfer, signature, dtypes, made_for, is_ragged)
            self._calls[key] = call
        return call(tensors)

    def _named(self, what: str) -> dict[str, Any]:
        """Return the arguments by which Horovod knows a transfer."""
        name = self._gates.name(what)
        return {"name": name, "ignore_name_scope": True, "process_set": self._set}


@functools.cache
def _refuse_vectorized_maps() -> None:
    """Let ``tf.vectorized_map`` refuse Horovod's operations: ranks would wait for each other."""
    names = (
        "Allreduce",
        "GroupedAllreduce",
        "Allgather",
        "Broadcast",
        "Reducescatter",
        "Alltoall",
    )
    for name in names:
        private_graph.refuse_in_vectorized_map(f"Horovod{name}", _in_vectorized_map)


def _in_vectorized_map() -> Exception:
    return NotImplementedError(
        "a collective that Horovod carries in tf.vectorized_map; use tf.map_fn, or reduce the"
        " whole tensor in one call"
    )
