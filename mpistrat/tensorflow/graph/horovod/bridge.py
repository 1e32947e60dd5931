"""`HorovodBridge`: the collectives of a strategy, carried by Horovod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.graph.bridge import OF_A_MEAN, Bridge
from mpistrat.tensorflow.graph.horovod import dtypes, installed, session
from mpistrat.tensorflow.graph.horovod.operations import Operations
from mpistrat.tensorflow.graph.horovod.tuning import Tuning
from mpistrat.tensorflow.graph.same_variables.gradient_order import GradientList

__all__ = ["HorovodBridge", "why_not_on"]

_SCATTERED = frozenset({tf.int32, tf.int64, tf.float16, tf.float32, tf.float64})


class HorovodBridge(Bridge):
    """As `Bridge`, for tensors of dtypes that Horovod can carry; `Bridge` carries the others.

    Parameters
    ----------
    communicator, options, gpu
        As of `Bridge`; with `gpu`, Horovod's operations on GPUs combine tensors that are there.
    tuning
        How Horovod is initialised, if it is not yet.
    member
        What this strategy has of Horovod; default: it joins.
    """

    def __init__(
        self,
        communicator: Communicator,
        options: Any = None,
        gpu: str | None = None,
        tuning: Tuning | None = None,
        member: session.Member | None = None,
    ) -> None:
        super().__init__(communicator, options)
        self._gpu = gpu
        self._member = member
        # One rank alone has nothing to send, and may have no MPI; but where Horovod runs already,
        # its other ranks wait for this one to take part in making process sets.
        if member is None and (self.size > 1 or session.is_running()):
            self._member = session.join(communicator, tuning or Tuning())
        if self.size > 1 and self._member is not None:
            self._operations = Operations(communicator, self._member, self._timeout)

    def _more(self) -> dict[str, Any]:
        return {"gpu": self._gpu, "member": self._member}

    @property
    def uses_gpus(self) -> bool:
        """Whether tensors on GPUs are combined there."""
        return self._gpu is not None and self.size > 1

    def place_of(self, tensor: Any) -> str | None:
        """See `Bridge`."""
        if not self.uses_gpus or tensor.dtype in {tf.int32, tf.string}:
            return None
        name: str = getattr(tensor, "backing_device", None) or tensor.device or self._gpu or ""
        return name if tf.DeviceSpec.from_string(name).device_type == "GPU" else None

    def close(self, is_well: bool = True) -> None:
        """See `Bridge`."""
        if self._member is not None:
            self._member.close(is_well)

    def all_reduce(
        self,
        tensors: Sequence[tf.Tensor],
        op: str = "sum",
        gradient_list: GradientList | None = None,
    ) -> list[tf.Tensor]:
        """See `Bridge`."""
        if self.size == 1:
            return list(tensors)
        results: dict[int, tf.Tensor] = {}
        for members in self._packs(tensors):
            for dtype in dict.fromkeys(tensors[i].dtype for i in members):
                alike = [i for i in members if tensors[i].dtype == dtype]
                found = self._reduced([tensors[i] for i in alike], op)
                results.update(zip(alike, found, strict=True))
        return [results[i] for i in range(len(tensors))]

    def all_reduce_on_gpu(
        self,
        tensors: Sequence[tf.Tensor],
        op: str,
        gpu: str,
        gradient_list: GradientList | None = None,
    ) -> list[tf.Tensor]:
        """See `Bridge`."""
        with tf.device(gpu):
            return self.all_reduce(tensors, op)

    def _reduced(self, tensors: list[tf.Tensor], op: str) -> list[tf.Tensor]:
        carried = dtypes.reduced(tensors[0].dtype)
        if carried is None:
            return super().all_reduce(tensors, op)
        sent = tensors if carried.there is None else [carried.there(one) for one in tensors]
        kind = "max" if carried.is_logical else op.partition(" ")[0]
        label = OF_A_MEAN if op == "sum of a mean" else None
        found = self._operations.all_reduce(sent, kind, label)
        return found if carried.back is None else [carried.back(one) for one in found]

    def all_gather(
        self, tensor: tf.Tensor, axis: int = 0, made_for: str | None = None
    ) -> tf.Tensor:
        """See `Bridge`."""
        carried = dtypes.moved(tensor.dtype)
        rank = tensor.shape.rank
        if self.size == 1 or carried is None or rank is None:
            return super().all_gather(tensor, axis, made_for)

        def gather(sent: tf.Tensor) -> tf.Tensor:
            if axis == 0:
                return self._operations.all_gather(sent, made_for)
            # Horovod gathers along the first dimension.
            order = [axis, *(i for i in range(sent.shape.rank) if i != axis)]
            found = self._operations.all_gather(tf.transpose(sent, order), made_for)
            return tf.transpose(found, tf.math.invert_permutation(order))

        shape = [None if i == axis else n for i, n in enumerate(tensor.shape)]
        return tf.ensure_shape(self._moved(tensor, gather), shape)

    def broadcast_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """See `Bridge`."""
        if self.size == 1 or dtypes.moved(tensor.dtype) is None:
            return super().broadcast_value(tensor)
        return self.broadcast_from(tensor, 0)

    def broadcast_first(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """See `Bridge`."""
        if self.size == 1 or dtypes.moved(tensor.dtype) is None:
            return super().broadcast_first(tensor, name)
        return self.broadcast_value(tensor)

    def broadcast_from(self, tensor: tf.Tensor, root: int) -> tf.Tensor:
        """Return the root's tensor; the others' has its shape and dtype."""
        if self.size == 1:
            return tf.identity(tensor)
        if tensor.dtype == tf.string:
            return self.all_gather(tensor[tf.newaxis])[root]
        return self._moved(tensor, lambda sent: self._operations.broadcast(sent, root))

    def reduce_scatter(self, tensor: tf.Tensor, op: str) -> tf.Tensor:
        """Combine over the ranks ("sum", "mean"); return this rank's part of the first dimension.

        Of dtypes that Horovod does not scatter every rank gets the whole, and takes its part.
        """
        if self.size > 1 and tensor.dtype in _SCATTERED:
            return self._operations.reduce_scatter(tensor, op)
        (total,) = self.all_reduce([tensor], op)
        length = tf.shape(total)[0]
        parts = [(length + self.size - 1 - rank) // self.size for rank in range(self.size)]
        return tf.split(total, tf.stack(parts), num=self.size)[self.rank]

    def all_to_all(self, tensor: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Send ``splits[i]`` rows of `tensor` to rank i; return what has come, and its splits."""
        if self.size == 1:
            return tf.identity(tensor), splits
        came: list[tf.Tensor] = []

        def exchange(sent: tf.Tensor) -> tf.Tensor:
            found, lengths = self._operations.all_to_all(sent, splits)
            came.append(lengths)
            return found

        return self._moved(tensor, exchange), came[0]

    def _moved(self, tensor: tf.Tensor, move: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return what `move` makes of a tensor of a dtype that Horovod has, in its own dtype."""
        carried = dtypes.moved(tensor.dtype)
        if carried is None:
            raise of_both(UsageError(f"Horovod moves no tensors of {tensor.dtype.name}"))
        found = move(tensor if carried.there is None else carried.there(tensor))
        return found if carried.back is None else carried.back(found)


def why_not_on(gpus: Sequence[str]) -> str | None:
    """Return why Horovod does not combine tensors on GPUs there; None if it does. **Local.**"""
    del gpus  # what holds for one holds for all
    return None if installed.load().nccl_built() else "Horovod was built without NCCL"
