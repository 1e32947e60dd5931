"""The operation ``MpistratDigest``: digests of the elements that a dataset gives, batch by batch.

kernels/tf/digest_op.cc is compiled on first use, as call_op.cc is. It reads at most some KiB of a
tensor, so an element costs a few microseconds on the thread that makes it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import secrets
import threading
import weakref
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from mpistrat.tensorflow import native_op

__all__ = ["Digests", "Marks", "Pass", "is_available"]

_numbers = itertools.count(secrets.randbits(60))  # a graph of another process finds none of ours
_lock = threading.Lock()


class Pass(NamedTuple):
    """How far the newest pass over a dataset is: its number (0: none yet), and its batches."""

    number: int
    batches: int


class Marks(NamedTuple):
    """Notes of batches.

    Attributes
    ----------
    digests
        Of shape ``[batches, components]``: of shapes, dtypes, integers and strings.
    sums, scales
        Of the same shape: weighted sums of floating-point numbers, and of their absolute values.
    is_varied
        By component: not 0 where rows of the pass differ.
    """

    digests: npt.NDArray[np.uint64]
    sums: npt.NDArray[np.float64]
    scales: npt.NDArray[np.float64]
    is_varied: npt.NDArray[np.uint8]


def is_available() -> bool:
    """Whether digests can be taken here; compiles the operation if need be. **Local.**"""
    with _lock:
        return _loaded() is not None


class Digests:
    """Digests of what a dataset gives; **Local**. For use where :func:`is_available`.

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
    dtypes
        Of these.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._module, self._library = _opened()
        self._key = next(_numbers)
        specs = tf.nest.flatten(dataset.element_spec, expand_composites=True)
        self.components = len(specs)
        self.dtypes = [spec.dtype for spec in specs]
        self._library.mpistrat_tf_open_digests(ctypes.c_int64(self._key))
        close = self._library.mpistrat_tf_close_digests
        weakref.finalize(self, close, ctypes.c_int64(self._key)).atexit = False
        # A filter, since TensorFlow finds the size of a batch through filters, not through maps.
        self.dataset = dataset.filter(self._noting()).with_options(dataset.options())

    def _noting(self) -> Any:
        module, key = self._module, self._key  # not this object, which graphs would keep alive

        def note(*element: Any) -> tf.Tensor:
            return module.mpistrat_digest(
                tf.nest.flatten(element, expand_composites=True), key=key
            )

        return tf.autograph.experimental.do_not_convert(note)

    def newest(self) -> Pass:
        """Return how far the newest pass is."""
        number = ctypes.c_int64()
        count = self._library.mpistrat_tf_count_digests(
            ctypes.c_int64(self._key), ctypes.c_int64(self.components), ctypes.byref(number)
        )
        return Pass(number.value, count)

    def read(self, number: int, first: int, count: int) -> Marks:
        """Return what was noted of the newest pass.

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


def _opened() -> tuple[ModuleType, Any]:
    found = _loaded()
    if found is None:
        raise AssertionError("digests are taken only where is_available() says so")
    return found


@functools.cache
def _loaded() -> tuple[ModuleType, Any] | None:
    found = native_op.opened("digest_op.cc", "ranks do not compare the data that they read")
    if found is not None:
        found[1].mpistrat_tf_count_digests.restype = ctypes.c_int64
    return found
