"""Cast values to a variable's dtype, unless more than precision would be lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_operand
from mpistrat.errors import UsageError
from mpistrat.strategy.values import Delegate
from mpistrat.types import Array, ArrayLike

__all__ = ["fitting"]


def fitting(value: ArrayLike, dtype: np.dtype[Any], what: str) -> Array:
    """Return `value` as an array of `dtype`, where it is: on a GPU, or on the host.

    Parameters
    ----------
    value
        To be assigned.
    dtype
        Of the variable.
    what
        Begins an error's message, with ``{}`` for the value.

    Raises
    ------
    UsageError
        It would lose more than precision.
    """
    if isinstance(value, Delegate):
        value = value._read()
    try:
        if isinstance(value, int):  # a Python number has no dtype of its own
            return np.array(value, dtype)
        array = as_operand(value)
        if not isinstance(array, np.ndarray):
            with gpu_devices.on_gpu(on_device.index_of(array)):
                return _cast(array, dtype)
        # A list of ints becomes int64, which "same_kind" does not cast to uint8, whatever the
        # numbers are: from the list itself NumPy converts each of them.
        if isinstance(value, (list, tuple)) and array.dtype.kind in "biu":
            return np.array(value, dtype)
        return _cast(array, dtype)
    except (TypeError, OverflowError) as error:
        raise UsageError(
            f"{what.format(repr(value))} of dtype {dtype}: {error}; convert the value with astype"
        ) from error


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    if not np.can_cast(array.dtype, dtype, "same_kind"):  # CuPy's astype does not ask
        raise TypeError(f"an array of {array.dtype} cannot be cast by the rule 'same_kind'")
    taken = array.astype(dtype, copy=False)
    # "same_kind" lets int64 become int32, whatever the values are.
    if dtype.kind in "iu" and array.itemsize > taken.itemsize and bool((taken != array).any()):
        raise OverflowError(f"values do not fit into {dtype}")
    return taken
