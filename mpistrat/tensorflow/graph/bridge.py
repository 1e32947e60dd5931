"""Run collectives on TensorFlow's tensors, in eager code and in graphs.

In a graph they are stateful, so that they run in the order in which they were traced. The native
operation (native_op.py) carries those whose results have the shape of their tensors;
``tf.numpy_function`` carries the others, and all where that operation cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.collectives.health.interrupts import heeding
from mpistrat.errors import ClosedError
from mpistrat.tensorflow.errors import of_both, passed_on
from mpistrat.tensorflow.graph import xla_call
from mpistrat.tensorflow.graph.gpu_collectives import GpuCollectives
from mpistrat.tensorflow.graph.ordering import in_order
from mpistrat.tensorflow.graph.packed_sums import SHORT_BYTES, PackedSums, start_one
from mpistrat.tensorflow.graph.same_variables.gradient_order import GradientList, VariableNumbers
from mpistrat.tensorflow.graph.same_variables.variable_order import NameOrder
from mpistrat.tensorflow.graph.tensor_collective import Finish, SameShape, Start, check_dtypes
from mpistrat.tensorflow.private import graph as private_graph
from mpistrat.types import Array

__all__ = ["OF_A_MEAN", "Bridge"]

OF_A_MEAN = "of a mean"  # what a call is made for that a rank with a sum must not join


class Bridge:
    """The collectives of one strategy. All methods are **Collective** if they do not say Local.

    Parameters
    ----------
    communicator
        The communicator of the strategy.
    options
        A ``tf.distribute.experimental.CommunicationOptions``, or None.
    gpu
        The GPU of this rank's first replica, if all ranks combine tensors on GPUs there; None if
        the host does.

    Attributes
    ----------
    is_native
        Whether its graphs run where the native operation can be had.
    numbers
        The numbers of the strategy's variables.
    """

    is_native = True

    def __init__(
        self, communicator: Communicator, options: Any = None, gpu: str | None = None
    ) -> None:
        self.communicator = communicator
        self._options = options or tf.distribute.experimental.CommunicationOptions()
        self._bytes_per_pack = self._options.bytes_per_pack or config.fusion_bytes()
        self._timeout = self._options.timeout_seconds
        self._others: dict[tuple[int, float | None], Bridge] = {}  # kept: graphs refer to them
        self._packed_sums = PackedSums(communicator, self._bytes_per_pack)
        self._sums = {
            "sum": self._all_reduce("sum"),
            "mean": self._all_reduce("mean"),
            "sum of a mean": self._all_reduce("sum", OF_A_MEAN),
        }
        self._names = NameOrder(communicator)
        self.numbers = VariableNumbers(communicator)
        self._kept_broadcasts: list[SameShape] = []  # of first values: graphs refer to them
        self._value_broadcast = self._same_shape(self._start_broadcast)
        self._gpu = gpu
        self._on_gpus = (
            None
            if gpu is None
            else GpuCollectives(communicator, gpu, self._bytes_per_pack, self._timeout)
        )

    @property
    def rank(self) -> int:
        """Index of this rank."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.communicator.size

    @property
    def uses_gpus(self) -> bool:
        """Whether tensors on GPUs are combined there."""
        return self._on_gpus is not None

    def place_of(self, tensor: Any) -> str | None:
        """Return the GPU on which a dense tensor is to be combined; None: the host. **Local.**"""
        # XLA compiles calls into the host's code only (xla_call.py).
        return None if self._on_gpus is None or _in_xla() else self._on_gpus.place_of(tensor)

    def under(self, options: Any) -> Bridge:
        """Return the bridge for calls with these options, or itself without options. **Local.**"""
        key = (options.bytes_per_pack, options.timeout_seconds)
        if key == (0, None):
            return self
        if key not in self._others:
            merged = self._options.merge(options)
            self._others[key] = type(self)(self.communicator, merged, **self._more())
        return self._others[key]

    def _more(self) -> dict[str, Any]:
        """Return what another bridge of this communicator is made with, besides options."""
        return {} if self._gpu is None else {"gpu": self._gpu}  # subclasses use none

    def close(self, is_well: bool = True) -> None:
        """Give up what the communicator does not, which is closed before.

        **Collective** unless the strategy ends with an error, which this rank may have alone.
        """

    def require_open(self) -> None:
        """Raise unless the strategy can still be used. **Local.**"""
        if self.communicator.is_closed:
            raise of_both(ClosedError("this strategy was closed; make a new one"))

    def all_reduce(
        self,
        tensors: Sequence[tf.Tensor],
        op: str = "sum",
        gradient_list: GradientList | None = None,
    ) -> list[tf.Tensor]:
        """Combine each tensor over the ranks; shapes and dtypes are equal on all.

        A "sum of a mean" is a sum that the caller divides: only ranks that all do so may meet.
        In a graph there is one collective for each ``bytes_per_pack``, the last tensors first:
        of gradients, these are the first that backpropagation has. Of which variables they are,
        if that is known, is compared.
        """
        if self.size == 1:
            return list(tensors)
        results: dict[int, tf.Tensor] = {}
        for members in self._packs(tensors):
            part = None if gradient_list is None or op != "sum" else gradient_list.part(members)
            sums = self._sums[op] if part is None else self._sums_of(part)
            found = sums([tensors[i] for i in members])
            results.update(zip(members, found, strict=True))
        return [results[i] for i in range(len(tensors))]

    def all_reduce_on_gpu(
        self,
        tensors: Sequence[tf.Tensor],
        op: str,
        gpu: str,
        gradient_list: GradientList | None = None,
    ) -> list[tf.Tensor]:
        """Combine tensors that :meth:`place_of` has found on a GPU, there; see all_reduce."""
        if self._on_gpus is None:
            raise AssertionError("only a bridge that uses GPUs has found a tensor on one")
        made_for = OF_A_MEAN if op == "sum of a mean" else None
        results: dict[int, tf.Tensor] = {}
        for members in self._packs(tensors):
            with tf.device(gpu):
                pack = [tensors[i] for i in members]
                if gradient_list is None or op != "sum":
                    found = self._on_gpus.all_reduce(pack, op.partition(" ")[0], made_for)
                else:
                    part = gradient_list.part(members)
                    found = self._sums_on_gpu(self._on_gpus, part, gpu).on_gpu(pack)
            results.update(zip(members, found, strict=True))
        return [results[i] for i in range(len(tensors))]

    def _sums_on_gpu(
        self, gpus: GpuCollectives, gradient_list: GradientList, gpu: str
    ) -> SameShape:
        if gpu not in gradient_list.sums:
            start = self.numbers.compared_once(gradient_list, gpus.start_sum)
            gradient_list.sums[gpu] = SameShape(start, self._timeout)
        return gradient_list.sums[gpu]

    def _all_reduce(self, op: str, made_for: str | None = None) -> SameShape:
        start_now = self._packed_sums.start_of(op)

        def start(sources: list[Array], results: list[Array]) -> Finish | None:
            # A call takes the label when it begins, so the label need not last until its end.
            with self.communicator.labelled(made_for):
                return start_now(sources, results)

        # Native code begins a call without Python, and so without its label.
        if made_for is not None:
            return self._same_shape(start)
        return self._same_shape(start_now, _Native(self.communicator, op))

    def _sums_of(self, gradient_list: GradientList) -> SameShape:
        found = gradient_list.sums.get(None)
        if found is None:
            start = self.numbers.compared_once(gradient_list, self._packed_sums.start_of("sum"))
            # Native code would begin without the label; `compared_once` hands it over.
            native = _Native(self.communicator, "sum")
            found = gradient_list.sums[None] = self._same_shape(start)
            start.after = partial(found.begin_natively, native)
        return found

    def _same_shape(self, start: Start, native: _Native | None = None) -> SameShape:
        return SameShape(start, self._timeout, native, self.is_native)

    def _packs(self, tensors: Sequence[tf.Tensor]) -> Iterator[list[int]]:
        """Yield lists of indices, one for each collective."""
        # Eagerly all tensors are there, and iallreduce_many makes the packs.
        limit = float("inf") if tf.executing_eagerly() else self._bytes_per_pack
        members: list[int] = []
        held = 0
        for index in reversed(range(len(tensors))):
            # All ranks need equal packs, so a shape that is not known while tracing counts as
            # nothing.
            nbytes = (tensors[index].shape.num_elements() or 0) * tensors[index].dtype.size
            if members and held + nbytes > limit:
                yield members
                members, held = [], 0
            members.append(index)
            held += nbytes
        if members:
            yield members

    def all_gather(
        self, tensor: tf.Tensor, axis: int = 0, made_for: str | None = None
    ) -> tf.Tensor:
        """Concatenate the ranks' tensors along `axis`, along which shapes may differ.

        What it is `made_for` has to be the same on all ranks.
        """
        if self.size == 1:
            return tensor
        shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
        if shape:
            shape[axis] = None

        def run(array: Array) -> Array:
            # Strings have no plain memory to send: they are pickled.
            if array.dtype == object:  # strings
                rows = self.communicator.allgather_object(array, timeout=self._timeout)
                return np.concatenate(rows, axis)
            return self.communicator.allgather(array, axis, timeout=self._timeout)

        def run_labelled(array: Array) -> Array:
            found: Array = self.numbers.compared(made_for, partial(run, array))
            return found

        return _call(run_labelled, tensor, tf.TensorShape(shape))

    def broadcast_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return rank 0's tensor; the others' has its shape and dtype.

        The dtype of a short one is not checked: that of a variable's first value was.
        """
        if self.size == 1:
            return tensor
        gpu = self.place_of(tensor)
        if gpu is not None and self._on_gpus is not None:
            with tf.device(gpu):
                return self._on_gpus.broadcast(tensor)
        if tensor.dtype == tf.string:
            return _call(self._broadcast_objects, tensor, tensor.shape)
        return self._value_broadcast([tensor])[0]

    def broadcast_first(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Return rank 0's tensor as the first value of the variable `name`, which is compared."""
        if self.size == 1:
            return tensor
        if tensor.dtype == tf.string:
            named = partial(self._names.done, name)
            return _call(
                lambda array: named(partial(self._broadcast_objects, array)), tensor, tensor.shape
            )
        gpu = self.place_of(tensor)

        def start(sources: list[Array], results: list[Array]) -> Finish:
            begin = partial(self.communicator.ibcast, sources[0], out=results[0])
            return self._names.started(name, begin)

        # Of this variable alone, for the sake of its name.
        collective = self._same_shape(start)
        if not tf.executing_eagerly():
            self._kept_broadcasts.append(collective)
        if gpu is None:
            return collective([tensor])[0]
        with tf.device(gpu):
            return collective.on_gpu([tensor])[0]

    def _broadcast_objects(self, array: Array) -> Array:
        # A tensor without dimensions comes as bytes.
        told = self.communicator.bcast_object(array, timeout=self._timeout)
        return np.asarray(told, object)

    def _start_broadcast(self, sources: list[Array], results: list[Array]) -> Finish | None:
        """Broadcast short values by an all-reduce of bytes, which begins sooner."""
        if sources[0].nbytes > SHORT_BYTES:
            return self.communicator.ibcast(sources[0], out=results[0]).wait
        # Other ranks than rank 0 add zeros.
        mine, result = _bytes(sources[0]), _bytes(results[0])
        sent = mine if self.rank == 0 else np.zeros_like(mine)
        return start_one(self.communicator, sent, result, "or")


class _Native:
    """An all-reduce of one tensor that native code begins."""

    def __init__(self, communicator: Communicator, op: str) -> None:
        self._communicator, self._op = communicator, op

    def how(self, array: Array) -> tuple[int, int, int] | None:
        """See `Native`."""
        return self._communicator.allreduce_natively(array, self._op)

    def carry_on(self, status: int, sequence: int, source: Array, result: Array) -> Finish:
        """See `Native`."""
        work = self._communicator.carry_on(status, sequence, source, self._op, result)
        return work.wait


def _in_xla() -> bool:
    return not tf.executing_eagerly() and private_graph.in_xla()


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8).reshape(*array.shape, array.itemsize)


def _call(run: Callable[[Array], Array], tensor: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """Call `run` with the tensor's array, now or when the graph runs."""
    if _in_xla():
        xla_call.refuse("whose result's shape is known when it runs only, as that of a gather is")

    if tensor.dtype != tf.string:
        check_dtypes([tensor.dtype.as_numpy_dtype])
    checked = partial(passed_on, heeding, run)
    if tf.executing_eagerly():
        return tf.convert_to_tensor(checked(tensor.numpy()))
    (result,) = in_order(lambda: [tf.numpy_function(checked, [tensor], tensor.dtype)])
    result.set_shape(shape)
    return result
