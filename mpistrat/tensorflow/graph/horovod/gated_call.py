"""`GatedCall`: a collective of Horovod's between two steps of this package.

Before it, all ranks compare what they call, with a deadline; after it, they go on in order. The
steps are operations with side effects, which TensorFlow neither merges nor drops nor reorders, and
Horovod's operation stands between them: by itself it has none of these properties.
"""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.operations.axis_rows import row_signature
from mpistrat.collectives.outside_call import OutsideCall
from mpistrat.errors import CommunicationError
from mpistrat.tensorflow.errors import of_both, passed_on, translate_also
from mpistrat.tensorflow.graph import xla_call
from mpistrat.tensorflow.graph.horovod.watch import Watch
from mpistrat.tensorflow.graph.tensor_collective import Finish, SameShape
from mpistrat.tensorflow.private import graph as private_graph
from mpistrat.types import Array

__all__ = ["GatedCall", "Gates"]

Transfer = Callable[[], list[tf.Tensor]]


class Gates:
    """The calls of one communicator that are in Horovod's hands.

    Parameters
    ----------
    communicator
        Whose ranks make the calls.
    timeout
        Seconds that one may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(self, communicator: Communicator, timeout: float | None) -> None:
        self.communicator, self.timeout = communicator, timeout
        self._watch = Watch(communicator, timeout)
        self._calls: dict[int, OutsideCall] = {}
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()  # of eager calls: one transfer at a time
        _all_gates.add(self)

    def start(self, signature: Signature, label: str | None) -> tuple[int, OutsideCall]:
        """Start a call; return its number and itself."""
        with self.communicator.labelled(label):
            return next(self._numbers), self.communicator.start_outside(signature)

    def hand_over(self, number: int, call: OutsideCall, timeout: float | None) -> None:
        """Wait until all ranks are here, and watch the transfer from then on."""
        call.wait_for_all(timeout)
        self._calls[number] = call
        self._watch.begin(call)

    def end(self, number: int) -> None:
        """End a call whose data have come."""
        self._watch.end()
        self._calls.pop(number).end()

    def drop(self) -> None:
        """End the calls under way whose graph failed elsewhere, and never comes to their end."""
        for number in tuple(self._calls):
            self.end(number)

    @property
    def is_busy(self) -> bool:
        """Whether a transfer is under way."""
        return bool(self._calls)

    def fail(self, error: Exception) -> Any:
        """End the calls under way, whose transfer failed here; return the error to raise."""
        self._watch.end()
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        rank = f"rank {self.communicator.rank}/{self.communicator.size}"
        raised: Any = CommunicationError(f"Horovod's transfer failed on {rank}: {text}")
        while self._calls:
            raised = self._calls.popitem()[1].fail(raised)
        return raised


class GatedCall:
    """Calls of one kind: of one operation, and of tensors of these dtypes.

    Parameters
    ----------
    gates
        Of the communicator.
    signature
        What must agree on all ranks, besides dtypes and shapes.
    dtypes
        Of the tensors.
    label
        What it is made for; must agree, too.
    is_ragged
        Whether lengths along `axis` may differ.
    """

    def __init__(
        self,
        gates: Gates,
        signature: Signature,
        dtypes: Sequence[tf.DType],
        label: str | None = None,
        is_ragged: bool = False,
    ) -> None:
        self._gates, self._label, self._is_ragged = gates, label, is_ragged
        self._dtypes = tuple(np.dtype(dtype.as_numpy_dtype) for dtype in dtypes)
        self._signature = signature
        self._before = SameShape(self._start, gates.timeout)
        self._after = SameShape(self._end, gates.timeout)

    def __call__(self, tensors: Sequence[tf.Tensor], transfer: Transfer) -> list[tf.Tensor]:
        """Compare the call, let `transfer` make it, and return its results. **Collective**."""
        if tf.executing_eagerly():
            return self._eagerly(tensors, transfer)
        if private_graph.in_xla():
            xla_call.refuse("which Horovod carries: it has no operations for XLA")
        dims = [tf.shape(tensor) for tensor in tensors]
        with tf.device("CPU:0"):  # where the two steps are, wherever the tensors are
            number, *_ = self._before([tf.zeros([], tf.int64), *dims])
        with tf.control_dependencies([number]):
            results = transfer()
        # One element of what has come, as data: Grappler drops what is depended on by order only.
        seen = [tf.reshape(results[-1], [-1])[:1]]
        with tf.control_dependencies(results), tf.device("CPU:0"):
            over = self._after([number, *seen])
        with tf.control_dependencies(over):
            return [tf.identity(result) for result in results]

    def _eagerly(self, tensors: Sequence[tf.Tensor], transfer: Transfer) -> list[tf.Tensor]:
        gates = self._gates
        shapes = tuple(tuple(tensor.shape.as_list()) for tensor in tensors)
        with gates.lock:
            number, call = passed_on(gates.start, self._of(shapes), self._label)
            passed_on(gates.hand_over, number, call, gates.timeout)
            try:
                results = transfer()
            except Exception as error:  # TensorFlow's of the operation, or a ValueError before it
                raise of_both(gates.fail(error)) from error
            passed_on(gates.end, number)
        return results

    def _start(self, sources: list[Array], results: list[Array]) -> Finish:
        """Start a call of a graph, whose shapes are known now."""
        shapes = tuple(tuple(map(int, dims)) for dims in sources[1:])
        number, call = self._gates.start(self._of(shapes), self._label)
        for source, result in zip(sources, results, strict=True):
            result[...] = source
        results[0][...] = number
        return partial(self._gates.hand_over, number, call)

    def _end(self, sources: list[Array], results: list[Array]) -> None:
        self._gates.end(int(sources[0]))
        for source, result in zip(sources, results, strict=True):
            result[...] = source

    def _of(self, shapes: tuple[tuple[int, ...], ...]) -> Signature:
        """Return what all ranks must agree on in a call of tensors of these shapes."""
        if self._is_ragged and self._signature.axis is not None:
            shapes = tuple(row_signature(shape, self._signature.axis) for shape in shapes)
        if len(shapes) == 1:
            return self._signature._replace(dtype=self._dtypes[0], shape=shapes[0])
        return self._signature._replace(dtype=self._dtypes, shape=shapes)


_all_gates: weakref.WeakSet[Gates] = weakref.WeakSet()
_OF_HOROVOD = re.compile(r"mpistrat_\d+_|[Hh]orovod")  # the names of its nodes; its own texts


def _translated(error: Any) -> Any:
    """Return this package's error for one of a graph in which a transfer was under way, or None.

    The graph may have failed elsewhere: its transfer ends by itself then, unseen.
    """
    raised = None
    for gates in [one for one in _all_gates if one.is_busy]:
        if _OF_HOROVOD.search(error.message):
            raised = of_both(gates.fail(error))
        else:
            gates.drop()
    return raised


translate_also(_translated)
