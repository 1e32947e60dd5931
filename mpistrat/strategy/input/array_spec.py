"""`ArraySpec`: the shape and dtype of an array that is not there yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpistrat.errors import ArgumentTypeError
from mpistrat.strategy.nest import map_nest
from mpistrat.types import Nest

__all__ = ["ArraySpec", "check_signature", "leaf_spec", "spec_of"]

Shape = tuple[int | None, ...]


@dataclass(frozen=True, repr=False)
class ArraySpec:
    """Describe arrays by shape and dtype; the counterpart of ``tf.TensorSpec``.

    Parameters
    ----------
    shape
        One entry per dimension, None where any length will do; None alone for any shape.
    dtype
        Anything that names a NumPy dtype.
    name
        A label for messages; it plays no part in compatibility.
    """

    shape: Shape | None
    dtype: np.dtype[Any]
    name: str | None = None

    def __init__(
        self, shape: Iterable[int | None] | None, dtype: npt.DTypeLike, name: str | None = None
    ) -> None:
        known = None if shape is None else tuple(n if n is None else int(n) for n in shape)
        object.__setattr__(self, "shape", known)
        object.__setattr__(self, "dtype", np.dtype(dtype))
        object.__setattr__(self, "name", name)

    def __repr__(self) -> str:
        return f"ArraySpec(shape={self.shape}, dtype={self.dtype}, name={self.name!r})"

    def is_compatible_with(self, spec_or_value: object) -> bool:
        """Tell whether an array, or every array of another spec, may be one of this spec.

        Parameters
        ----------
        spec_or_value
            An `ArraySpec`, or an array or number. A dimension that is None in either fits any.

        Returns
        -------
        bool
            True if the dtypes are equal and the shapes do not contradict each other.
        """
        other = spec_or_value if isinstance(spec_or_value, ArraySpec) else leaf_spec(spec_or_value)
        if self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(
            a is None or b is None or a == b for a, b in zip(self.shape, other.shape, strict=True)
        )


def leaf_spec(leaf: Any) -> ArraySpec:
    """Return the exact spec of one array or number."""
    try:
        # TensorFlow's dtypes carry NumPy's as an attribute.
        return ArraySpec(leaf.shape, getattr(leaf.dtype, "as_numpy_dtype", leaf.dtype))
    except (AttributeError, TypeError, ValueError):
        # A number, a list, or a library whose shapes or dtypes are not NumPy's.
        array = np.asarray(leaf)
        return ArraySpec(array.shape, array.dtype)


def spec_of(nest: Nest, unknown_batch: bool) -> Nest:
    """Return the nest of specs of a nest of arrays.

    Parameters
    ----------
    nest
        Arrays in tuples, lists and dicts, or already specs.
    unknown_batch
        True: leave the first dimension of each leaf open (None); 0-d leaves stay as they are.

    Returns
    -------
    Nest
        `ArraySpec` in place of each array; None stays None.
    """

    def describe(leaf: object) -> ArraySpec | None:
        if leaf is None:
            return None
        spec = leaf if isinstance(leaf, ArraySpec) else leaf_spec(leaf)
        return _open_batch(spec) if unknown_batch else spec

    return map_nest(describe, nest)


def _open_batch(spec: ArraySpec) -> ArraySpec:
    if not spec.shape:
        return spec
    return ArraySpec((None, *spec.shape[1:]), spec.dtype, spec.name)


def check_signature(element: Nest, signature: Nest) -> Nest:
    """Return `element` with the dtypes of `signature`; raise if its shapes or nest differ.

    Raises
    ------
    ArgumentTypeError
        The element is another nest, or a leaf has another shape.
    """
    import optree

    def convert(spec: ArraySpec, leaf: object) -> npt.NDArray[Any]:
        array = np.asarray(leaf, spec.dtype)
        if not spec.is_compatible_with(array):
            raise ArgumentTypeError(
                f"an element has an array of shape {array.shape}; the output_signature expects"
                f" {spec}: put None where the length varies"
            )
        return array

    try:
        return optree.tree_map(convert, signature, element, none_is_leaf=True)
    except ArgumentTypeError:
        raise
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"an element of type {type(element).__name__} does not have the structure or dtypes of"
            f" output_signature={signature!r}: {error}"
        ) from error
