"""`GatedCall`: a collective of Horovod's between two steps of this package.

Before it, all ranks compare what they call, with a deadline; after it, they go on in order. The
steps are operations with side effects, which TensorFlow neither merges nor drops nor reorders, and
Horovod's operation stands between them: by itself it has none of these properties.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.operations.axis_rows import row_signature
from mpistrat.errors import CommunicationError
from mpistrat.tensorflow.errors import of_both, passed_on
from mpistrat.tensorflow.graph import xla_call
from mpistrat.tensorflow.graph.horovod.gates import Gates
from mpistrat.tensorflow.graph.horovod.named_function import Transfer, concrete, in_own_scope
from mpistrat.tensorflow.graph.tensor_collective import Finish, SameShape
from mpistrat.tensorflow.private import graph as private_graph
from mpistrat.types import Array

__all__ = ["GatedCall"]


class GatedCall:
    """Calls of one kind: of one operation, and of tensors of these dtypes.

    Parameters
    ----------
    gates
        Of the communicator.
    transfer
        Makes Horovod's transfer of the tensors.
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
        transfer: Transfer,
        signature: Signature,
        dtypes: Sequence[tf.DType],
        label: str | None = None,
        is_ragged: bool = False,
    ) -> None:
        self._gates, self._label, self._is_ragged = gates, label, is_ragged
        self._dtypes = tuple(np.dtype(dtype.as_numpy_dtype) for dtype in dtypes)
        self._signature, self._transfer = signature, transfer
        # TensorFlow gives eager operations no name, by which Horovod matches transfers: those of
        # other strategies would be taken for this one's. Operations of a function have names.
        self._function = functools.cache(lambda: concrete(self._made, dtypes))
        self._before = SameShape(self._start, gates.timeout)
        self._after = SameShape(self._end, gates.timeout)

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Compare the call, make its transfer, and return the results. **Collective**."""
        if tf.executing_eagerly():
            return self._eagerly(tensors)
        if private_graph.in_xla():
            xla_call.refuse("which Horovod carries: it has no operations for XLA")
        dims = [tf.shape(tensor) for tensor in tensors]
        with tf.device("CPU:0"):  # where the two steps are, wherever the tensors are
            number, *_ = self._before([tf.zeros([], tf.int64), *dims])
        with tf.control_dependencies([number]):
            results = self._made(*tensors)
        # One element of what has come, as data: Grappler drops what is depended on by order only.
        seen = [tf.reshape(results[-1], [-1])[:1]]
        with tf.control_dependencies(results), tf.device("CPU:0"):
            over = self._after([number, *seen])
        with tf.control_dependencies(over):
            return [tf.identity(result) for result in results]

    def _made(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """Make the transfer in a graph.

        Raises
        ------
        CommunicationError
            Horovod was shut down.
        """
        try:
            return in_own_scope(self._transfer, *tensors)
        except ValueError as error:  # Horovod is asked for its size
            raise of_both(self._gates.fail(error)) from error

    def _eagerly(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        gates = self._gates
        shapes = tuple(tuple(tensor.shape.as_list()) for tensor in tensors)
        function = self._function()
        with gates.lock:
            number, call = passed_on(gates.start, self._of(shapes), self._label)
            passed_on(gates.hand_over, number, call, gates.timeout)
            try:
                results = function(*tensors)
            except CommunicationError:  # of this call (gates.py)
                raise
            except Exception as error:
                raise of_both(gates.fail(error)) from error
            except BaseException as interrupt:
                gates.fail(interrupt)
                raise
            passed_on(gates.end, number)
        return list(results)

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
