"""Type names used in signatures all over the package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

__all__ = ["Array", "ArrayLike", "Nest"]

Array: TypeAlias = npt.NDArray[Any]
"""A NumPy array of any dtype and shape."""

ArrayLike: TypeAlias = Any
"""What :func:`mpistrat.collectives.arrays.conversion.as_array` takes: NumPy arrays and scalars,
Python numbers, nested lists of numbers, and host arrays with ``__dlpack__`` or ``__array__``."""

Nest: TypeAlias = Any
"""An array-like, or tuples, lists, dicts and registered containers of nests (see optree)."""
