"""Convert the state of an object to JSON and tensors, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.checkpoint.files import plain_values
from mpistrat.types import Array

__all__ = ["decode_state"]


def decode_state(saved: dict[str, Any], load: Callable[[str], Array]) -> Any:
    """Rebuild the state of an object, with arrays in the place of variables.

    Parameters
    ----------
    saved
        As `mpistrat.checkpoint.objects.leaves.encode_state` made it.
    load
        Returns the tensor of a name.
    """
    ((kind, value),) = saved.items()
    if kind == "tensor":
        return load(value)
    if kind == "dict":
        return {plain_values.decode(key): decode_state(one, load) for key, one in value}
    if kind == "list":
        return [decode_state(one, load) for one in value]
    if kind == "tuple":
        return tuple(decode_state(one, load) for one in value)
    return plain_values.decode(saved)
