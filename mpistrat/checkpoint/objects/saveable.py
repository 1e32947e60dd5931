"""Protocols for objects that save themselves: tensors, whole or by rows, and a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.types import Array

__all__ = ["Keeper", "Lack", "Late", "Part", "Parted", "Stateful", "row_count"]


def row_count(shape: Sequence[int]) -> int:
    """Return the length along axis 0; a 0-d tensor is one row."""
    return shape[0] if shape else 1


class Keeper(Protocol):
    """A process, such as a parameter server, that keeps parts and saves them itself.

    Equal ones, with equal hashes, are one process.
    """

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function(context, *arguments)`` in that process; return the result.

        `function` can be imported; ``context.shard(handle)`` is what is kept, a
        `mpistrat.ps.storage.shard.Shard`, and ``context.staged`` a dict that stays.
        """


@dataclass(frozen=True)
class Part:
    """A tensor, or those rows of it that this rank holds.

    Attributes
    ----------
    name
        Unique within its object; "" if the object is one tensor. A checkpoint knows nothing else
        of how the tensor was divided, so it can be restored with any other division: the object
        offers other rows of the same names.
    shape
        Of the whole tensor, the same on all ranks.
    dtype
        Of the tensor, the same on all ranks.
    read
        Returns the rows held, to be written. For a tensor that all ranks hold it is called on all
        ranks in the same order, so it may be collective.
    write
        Takes the rows, restored, in an array of its own (but see `copies`). **Local.**
    rows
        Start and stop along axis 0 of the rows held. Every row is held by one rank. None: all
        ranks hold the whole tensor, with equal values.
    keeper, handle
        The process that keeps the rows, if it is another one, and its key for them. It is asked
        by this rank to write and read them itself, and `read` and `write` are not called.
    copies
        Whether `write` copies what it takes, so that this may be a part of a longer array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]
    write: Callable[[Array], Any]
    rows: tuple[int, int] | None = None
    keeper: Keeper | None = None
    handle: Any = None
    copies: bool = False

    def __post_init__(self) -> None:
        count = row_count(self.shape)
        if self.rows is not None and not (
            self.shape and 0 <= self.rows[0] <= self.rows[1] <= count
        ):
            raise UsageError(
                f"Part {self.name!r}: rows {self.rows} of a tensor of shape {self.shape}; expected"
                " (start, stop) within its axis 0"
            )
        if self.keeper is not None and self.rows is None:
            raise UsageError(f"Part {self.name!r}: a keeper, and no rows; expected both")


@runtime_checkable
class Parted(Protocol):
    """An object of tensors that ranks may hold parts of, such as a sharded variable.

    All ranks of the strategy have the object; some may offer no part. It may be `Stateful` too,
    for what is not in the parts. If it has ``distribute_strategy``, saving is collective over its
    ranks.
    """

    def checkpoint_parts(self) -> Sequence[Part]:
        """Return the parts that this rank holds, in an order that the ranks share. **Local.**"""


Lack: TypeAlias = tuple[tuple[str, ...], str]
"""What an object cannot take from a checkpoint yet: children of these names; and advice."""


@runtime_checkable
class Late(Protocol):
    """An object that makes what is saved of it late, such as an optimizer at its first step."""

    def lacks_for_restore(self) -> Lack | None:
        """Return what it has not made yet, and what is to be done, or None. **Local.**"""


@runtime_checkable
class Stateful(Protocol):
    """An object with ``state_dict`` and ``load_state_dict``, such as an optimizer."""

    def state_dict(self) -> Any:
        """Return dicts, lists and tuples of arrays, variables, numbers, strings and None.

        **Local.** Alike on all ranks; where numbers differ, rank 0's are saved.
        """

    def load_state_dict(self, state: Any) -> Any:
        """Restore a state, in which arrays stand in the place of variables. **Local.**"""
