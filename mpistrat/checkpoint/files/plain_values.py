"""Convert numbers and strings to JSON and back, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.checkpoint.files.dtypes import as_dtype
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError

__all__ = ["NUMBERS", "decode", "encode"]

NUMBERS = (bool, int, float, complex, np.generic)


def encode(value: Any) -> dict[str, Any]:
    """Return JSON for None, a string or a number.

    Raises
    ------
    ArgumentTypeError
        It is something else.
    """
    if isinstance(value, np.generic):
        array = as_array(value)
        return {"numpy": [array.dtype.name, array.tobytes().hex()]}
    if value is None or isinstance(value, bool | str):
        return {"json": value}
    if isinstance(value, int):
        return {"int": hex(value)}  # of any length
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    raise ArgumentTypeError(
        f"a {type(value).__name__} cannot be saved: {value!r}; expected a number, a string or None"
    )


def decode(saved: dict[str, Any]) -> Any:
    """Return the value that :func:`encode` was given."""
    ((kind, value),) = saved.items()
    if kind == "numpy":
        return np.frombuffer(bytes.fromhex(value[1]), as_dtype(value[0]))[0]
    if kind == "int":
        return int(value, 16)
    if kind == "float":
        return float.fromhex(value)
    if kind == "complex":
        return complex(*map(float.fromhex, value))
    return value
