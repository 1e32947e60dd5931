"""The operation ``MpistratDigest``: digests of the elements of a dataset, batch by batch.

Its other side is kernels/tf/digest_op.h. It reads at most some KiB of a tensor: an element costs
a few microseconds on the thread that reads it. Elements with ragged or sparse tensors, which a
dataset holds encoded, are noted by a filter, for 50 µs more.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import secrets
import weakref
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.graph import native_library, native_op
from mpistrat.tensorflow.private import data as private_data

__all__ = ["Digests", "Marks", "Pass", "is_available"]

_LOG = get_logger(__name__)
_numbers = itertools.count(secrets.randbits(60))  # a graph of another process finds none of ours


class Pass(NamedTuple):
    """The newest pass over a dataset: its number (0: none yet), and its batches so far."""

    number: int
    batches: int


class Marks(NamedTuple):
    """Digests of batches.

    Attributes
    ----------
    digests
        Of shape ``[batches, components]``: of shapes, dtypes, integers and strings.
    sums, allowed
        Of the same shape: weighted sums of floating-point numbers, and how much the sums of two
        ranks may differ by rounding.
    is_varied
        By component: not 0 where rows of the pass differ.
    """

    digests: npt.NDArray[np.uint64]
    sums: npt.NDArray[np.float64]
    allowed: npt.NDArray[np.float64]
    is_varied: npt.NDArray[np.uint8]


def is_available() -> bool:
    """Whether digests can be computed here; compiles the operation if necessary. **Local.**"""
    if native_op.has_workers():
        warn_once(
            _LOG,
            "no digests for machines of TensorFlow's",
            "ranks do not compare the data that they read: TensorFlow is connected to other"
            " machines, where the operation is not known",
            "INFO",
        )
        return False
    return _loaded() is not None


class Digests:
    """Digests of a dataset's elements. **Local**; needs :func:`is_available`.

    Parameters
    ----------
    dataset
        Of any elements; not changed.

    Attributes
    ----------
    dataset
        The same elements; each pass over it notes their digests.
    components
        Number of tensors in an element.
    dtypes, is_structure
        Of these: their dtypes, and whether one says where rows are, not what is in them.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._module, self._library = _opened()
        self._key = next(_numbers)
        found = [part for spec in _leaves(dataset.element_spec) for part in _parts(spec)]
        self.components = len(found)
        self.dtypes = [dtype for dtype, _ in found]
        self.is_structure = [is_structure for _, is_structure in found]
        # Before the dataset can be read: an iterator without an open key notes nothing.
        self._library.mpistrat_tf_open_digests(ctypes.c_int64(self._key))
        close = self._library.mpistrat_tf_close_digests
        # Not at exit: pipelines may run until the process ends.
        weakref.finalize(self, close, ctypes.c_int64(self._key)).atexit = False
        # A dataset holds ragged and sparse tensors encoded as variants, whose dtypes differ from
        # these.
        is_plain = private_data.component_dtypes(dataset) == self.dtypes
        self.dataset = (self._wrapped if is_plain and _is_native() else self._filtered)(dataset)

    def _wrapped(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return _wrapped(self._module, dataset, self._key)

    def _filtered(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        # A filter, since TensorFlow finds the size of a batch through filters, not through maps.
        noted = dataset.filter(self._noting())
        number = int(dataset.cardinality())
        # A filter forgets the number of elements, which Keras shows and plans its epochs by.
        if number != tf.data.UNKNOWN_CARDINALITY:
            noted = noted.apply(tf.data.experimental.assert_cardinality(number))
        return noted.with_options(dataset.options())

    def _noting(self) -> Any:
        module, key = self._module, self._key  # not this object, which graphs would keep alive

        def note(*element: Any) -> tf.Tensor:
            parts = tf.nest.flatten(element, expand_composites=True)
            return module.mpistrat_digest([one for one in parts if one is not None], key=key)

        return tf.autograph.experimental.do_not_convert(note)

    def newest(self) -> Pass:
        """Return the number and batches of the newest pass."""
        number = ctypes.c_int64()
        count = self._library.mpistrat_tf_count_digests(
            ctypes.c_int64(self._key), ctypes.c_int64(self.components), ctypes.byref(number)
        )
        return Pass(number.value, count)

    def read(self, number: int, first: int, count: int) -> Marks:
        """Return the digests of the newest pass.

        Parameters
        ----------
        number
            The pass, as :meth:`newest` gave it.
        first, count
            Which batches of it, and how many.

        Returns
        -------
        Marks
            Zeros if a newer pass has begun meanwhile.
        """
        shape = (count, self.components)
        marks = Marks(
            np.zeros(shape, np.uint64), np.zeros(shape), np.zeros(shape), np.zeros(shape[1], "u1")
        )
        numbers = (self._key, number, first, count, self.components)
        pointers = (array.ctypes.data for array in marks)
        self._library.mpistrat_tf_read_digests(
            *map(ctypes.c_int64, numbers), *map(ctypes.c_void_p, pointers)
        )
        return marks


def _leaves(spec: Any) -> list[Any]:
    return [one for one in tf.nest.flatten(spec) if hasattr(one, "shape")]  # None has a spec, too


def _parts(spec: Any) -> list[tuple[Any, bool]]:
    """Return the dtype of each tensor of a leaf, and whether it is structure only."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    if isinstance(spec, tf.RaggedTensorSpec):
        return [(one.dtype, index > 0) for index, one in enumerate(parts)]  # values, row splits
    if isinstance(spec, tf.SparseTensorSpec):
        return [(one.dtype, index == 2) for index, one in enumerate(parts)]  # the dense shape
    return [(one.dtype, False) for one in parts]


def _wrapped(module: ModuleType, dataset: tf.data.Dataset, key: int) -> tf.data.Dataset:
    found: tf.data.Dataset = private_data.wrapped(dataset, module.filter_dataset_v674, key=key)
    return found


@functools.cache
def _is_native() -> bool:
    """Whether TensorFlow finds a batch's size through this operation, by the latter's name."""
    module, _ = _opened()
    batches = tf.data.Dataset.range(2).batch(2)
    try:
        return private_data.batch_size_of(_wrapped(module, batches, key=next(_numbers))) == 2
    except tf.errors.OpError as error:
        _LOG.info("digests are taken by a filter: %s", error)
        return False


def _opened() -> tuple[ModuleType, Any]:
    found = _loaded()
    if found is None:
        raise AssertionError("digests are taken only where is_available() says so")
    return found


@functools.cache
def _loaded() -> tuple[ModuleType, Any] | None:
    found = native_library.operations()
    if found is not None:
        # Twice does no harm. ctypes takes a result for an int of 32 bits unless it is told.
        found[1].mpistrat_tf_count_digests.restype = ctypes.c_int64
    return found
