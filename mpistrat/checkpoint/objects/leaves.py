"""Save single objects: variables, arrays, and objects with a state of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpistrat.checkpoint.files import plain_values
from mpistrat.checkpoint.objects.names import escape
from mpistrat.checkpoint.objects.saveable import Part, Parted, Stateful
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.central import CentralVariable
from mpistrat.strategy.variables.sharded.variable import ShardedVariable
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array

__all__ = ["STATE", "array_part", "encode_state", "is_leaf", "parts_of", "variable_part"]

STATE = "state:"
"""Begins the names of the tensors in an object's state."""


def is_leaf(thing: Any) -> bool:
    """Tell whether an object is saved as a whole, and not through its attributes."""
    if isinstance(thing, type):
        return False
    return isinstance(thing, (Variable, ShardedVariable, Parted, Stateful))


def parts_of(thing: Any) -> tuple[Part, ...]:
    """Return the tensors of a leaf, without those in its state."""
    if isinstance(thing, Parted):
        parts = tuple(thing.checkpoint_parts())
        names = [(part.name, part.rows) for part in parts]
        if len(set(names)) < len(names) or any(part.name.startswith(STATE) for part in parts):
            raise UsageError(
                f"checkpoint_parts() of a {type(thing).__name__} names {names}; expected each name"
                f" once for the same rows, and none that begins with {STATE!r}"
            )
        return parts
    if isinstance(thing, CentralVariable):
        return (_central_part(thing),)
    return _variable_parts(thing) if isinstance(thing, (Variable, ShardedVariable)) else ()


def _variable_parts(variable: Variable | ShardedVariable) -> tuple[Part, ...]:
    """Return the parts of a variable: rows that servers or this rank keep, or all of it."""
    pieces = variable.variables if isinstance(variable, ShardedVariable) else [variable]
    if not variable.shape or any(piece.kept is None for piece in pieces):
        return (variable_part(variable),)
    ranges = RowRanges([piece.shape[0] for piece in pieces])
    return tuple(
        Part("", variable.shape, variable.dtype, one.read_value, one.assign, rows, *one.kept)
        for one, rows in zip(pieces, ranges, strict=True)
    )


def variable_part(variable: Variable | ShardedVariable) -> Part:
    """Return a variable as a tensor that all ranks hold, whole if it is in parts."""
    dtype = variable.dtype

    def read() -> Array:  # the mean of integers is a float; integers is what can be restored
        return np.asarray(variable).astype(dtype, copy=False)

    is_here = isinstance(variable, Variable) and variable.kept is None
    return Part("", variable.shape, dtype, read, variable.assign, copies=is_here)


def _central_part(variable: CentralVariable) -> Part:
    """Return this rank's rows of a central variable, read and written in place.

    No rank reads it while others restore their rows: all are in that call.
    """
    extended, memory = variable.distribute_strategy.extended, variable.memory()
    rows = extended.share(memory.shape[0]) if memory.size and memory.ndim else None
    mine = memory if rows is None else memory[slice(*rows)]

    def write(value: Array) -> None:
        # A value that is not divided by rows is one memory of all ranks, which one of them writes.
        if rows is not None or extended.communicator.rank == 0:
            np.copyto(mine, value)

    return Part("", memory.shape, memory.dtype, lambda: mine, write, rows)


def array_part(array: Array, path: str) -> Part:
    """Return an array as a tensor that all ranks hold, restored in place."""

    def write(value: Array) -> None:
        np.copyto(array, value)

    as_array(array)  # refuses what cannot be saved
    if not array.flags.writeable:
        raise UsageError(
            f"array {path!r} is read-only, so it could not be restored; save a copy, or make it a"
            " Variable"
        )
    return Part("", array.shape, array.dtype, lambda: array, write, copies=True)


def encode_state(state: Any, name: str = STATE) -> tuple[dict[str, Any], list[Part]]:
    """Return the state of an object as JSON and the tensors in it.

    Raises
    ------
    ArgumentTypeError
        Something in it can be neither.
    """
    if isinstance(state, (Variable, ShardedVariable)):
        read = variable_part(state).read
        return {"tensor": name}, [Part(name, state.shape, state.dtype, read, _no_write)]
    if isinstance(state, Mapping):
        return _encode_mapping(state, name)
    if isinstance(state, list | tuple):
        rows = [encode_state(one, _below(name, f"[{i}]")) for i, one in enumerate(state)]
        kind = "list" if isinstance(state, list) else "tuple"
        return {kind: [one for one, _ in rows]}, [part for _, parts in rows for part in parts]
    is_array = hasattr(state, "__array__") or hasattr(state, "__dlpack__")
    if is_array and not isinstance(state, np.generic):
        array = as_array(state)
        return {"tensor": name}, [Part(name, array.shape, array.dtype, lambda: array, _no_write)]
    return plain_values.encode(state), []


def _encode_mapping(state: Mapping[Any, Any], name: str) -> tuple[dict[str, Any], list[Part]]:
    items, found = [], []
    for key, value in state.items():
        if not isinstance(key, str | int):
            raise ArgumentTypeError(
                f"state_dict() has the key {key!r}, a {type(key).__name__}; expected str or int"
            )
        encoded, parts = encode_state(
            value, _below(name, key if isinstance(key, str) else f"[{key}]")
        )
        items.append([plain_values.encode(key), encoded])
        found += parts
    return {"dict": items}, found


def _below(name: str, key: str) -> str:
    return name + escape(key) if name == STATE else f"{name}/{escape(key)}"


def _no_write(value: Array) -> None:
    """Do nothing: ``load_state_dict`` restores the state as a whole."""
