"""Pass rows to a ps on the same machine through memory that both have mapped.

A member writes rows and their values to a room, sends a message that says so, and may use the room
again once the ps, which reads them in place, has set the room's word back. Members and ps of other
machines, and what is small, use messages alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.collectives.backends.shared_memory import segment
from mpistrat.errors import CommunicationError
from mpistrat.ps.storage.memory import check_descriptor, namespace
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.types import Array

__all__ = ["Lent", "Lodging", "Parcel", "Rooms"]

_WORD_BYTES = 64  # a line of its own
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 256 << 20  # of what is handed over like this
_SMALLEST = 1 << 20
_ROOMS = 2  # of a member at a ps: one is filled while the other is read


@dataclass(frozen=True)
class Lent:
    """What a message says of rows in a room."""

    room: str
    count: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the room that they need."""
        return self._values_at + self.count * int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def _values_at(self) -> int:
        rows = self.count * np.dtype(np.int64).itemsize
        return _WORD_BYTES + -(-rows // _WORD_BYTES) * _WORD_BYTES

    def arrays(self, mapped: segment.Segment) -> tuple[Array, Array]:
        """Return the rows, int64, and their values, in place."""
        memory = mapped.view(0, mapped.nbytes)
        rows = memory[_WORD_BYTES:][: self.count * 8].view(np.int64)
        values = memory[self._values_at : self.nbytes].view(self.dtype)
        return rows, values.reshape(self.count, *self.shape)


@dataclass(frozen=True)
class Parcel:
    """Room for some rows on their way to a ps.

    Attributes
    ----------
    rows, values
        To be filled: int64 of shape [n], and of shape [n, ...].
    lent
        What to send in their place; None: they are sent themselves.
    give_up
        To be called if they are not sent.
    """

    rows: Array
    values: Array
    lent: Lent | None = None
    give_up: Callable[[], None] = lambda: None


class _Room:
    """Memory that a ps has mapped, too; it may have been filled and not yet read."""

    def __init__(self, mapped: segment.Segment) -> None:
        self.segment, self.name = mapped, mapped.nonce
        self.word = mapped.view(0, 8).view(np.uint64)

    def try_take(self) -> bool:
        """Take it unless it is in use; by one thread at a time."""
        if kernels().get_word(self.word):
            return False
        kernels().set_word(self.word, 1)
        return True

    def give_up(self) -> None:
        """Take back what was taken, of which the ps was told nothing."""
        kernels().set_word(self.word, 0)


class Rooms:
    """A member's rooms at one ps.

    Parameters
    ----------
    member
        Who this is, in words.
    ask, settle
        Ask the ps something; wait until it has done all that was sent.
    """

    def __init__(self, member: str, ask: Callable[..., Any], settle: Callable[[], object]) -> None:
        self._member, self._ask, self._settle = member, ask, settle
        self._rooms: list[_Room] = []
        self._lock = threading.Lock()
        self._has_none = why_no_kernels() is not None

    def parcel(self, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Parcel:
        """Return room for rows of a shape; waits for some if the ps has not read the last ones."""
        wanted = Lent("", count, shape, dtype)
        room = None
        if not self._has_none and _LEAST_BYTES <= wanted.nbytes <= _MOST_BYTES:
            with self._lock:
                room = self._taken(wanted.nbytes)
        if room is None:
            return Parcel(np.empty(count, np.int64), np.empty((count, *shape), dtype))
        lent = Lent(room.name, count, shape, dtype)
        return Parcel(*lent.arrays(room.segment), lent, room.give_up)

    def close(self) -> None:
        """Use none any more: what is left is sent in messages. Idempotent."""
        with self._lock:
            self._has_none = True
            self._rooms.clear()

    def _taken(self, nbytes: int) -> _Room | None:
        room = self._free(nbytes)
        if room is None and len(self._rooms) < _ROOMS:
            return self._new(nbytes)
        if room is None and not self._is_any_free():
            self._settle()
            room = self._free(nbytes)
        return room or self._instead_of_a_smaller_one(nbytes)

    def _is_any_free(self) -> bool:
        return any(not kernels().get_word(room.word) for room in self._rooms)

    def _free(self, nbytes: int) -> _Room | None:
        fitting = (one for one in self._rooms if one.segment.nbytes >= nbytes)
        return next((one for one in fitting if one.try_take()), None)

    def _instead_of_a_smaller_one(self, nbytes: int) -> _Room | None:
        for room in self._rooms:
            if room.segment.nbytes < nbytes and room.try_take():
                self._rooms.remove(room)
                self._ask("leave_room", room.name)
                return self._new(nbytes)
        return None

    def _new(self, nbytes: int) -> _Room | None:
        """Make one that the ps can map; if it cannot, there will be no others."""
        try:
            mapped = _allocated(max(_SMALLEST, 1 << (nbytes - 1).bit_length()))
        except OSError:
            self._has_none = True  # messages need no memory that is shared
            return None
        try:
            self._has_none = not self._ask_to_map(mapped)
        finally:
            mapped.release_name()
        if self._has_none:
            return None
        room = _Room(mapped)
        room.try_take()
        self._rooms.append(room)
        return room

    def _ask_to_map(self, mapped: segment.Segment) -> bool:
        """Ask the parameter server to map a buffer; return whether it has."""
        place = namespace(), mapped.path, mapped.nbytes, mapped.nonce
        try:
            return bool(self._ask("enter_room", self._member, *place))
        except CommunicationError:
            raise
        except Exception:  # of a change that was sent before: the ps has the room all the same
            self._ask("leave_room", mapped.nonce)
            raise


def _allocated(nbytes: int) -> segment.Segment:
    mapped = segment.create(nbytes)
    try:
        check_descriptor(mapped.descriptor)
        mapped.allocate(0, nbytes)
    except OSError:
        mapped.release_name()
        raise
    return mapped


class Lodging:
    """The rooms that a ps has mapped, of all members."""

    def __init__(self) -> None:
        self._rooms: dict[str, tuple[str, segment.Segment]] = {}

    def enter(self, member: str, space: str, path: str, nbytes: int, name: str) -> bool:
        """Map a member's room; return False if that is not possible."""
        if space != namespace():
            return False
        try:
            mapped = segment.open_existing(path, nbytes, name)
        except OSError:
            return False
        try:
            check_descriptor(mapped.descriptor)  # shards, and others, need some too
        except OSError:
            return False
        finally:
            mapped.release_name()
        self._rooms[name] = member, mapped
        return True

    def leave(self, name: str) -> None:
        """Use a room no more."""
        self._rooms.pop(name, None)

    def forget(self, member: str) -> None:
        """Leave all rooms of a member that has ended."""
        for name in [name for name, (owner, _) in self._rooms.items() if owner == member]:
            self.leave(name)

    def close(self) -> None:
        """Leave all rooms."""
        self._rooms.clear()

    @contextmanager
    def reading(self, lent: Lent) -> Iterator[tuple[Array, Array]]:
        """Give rows and their values in place; after the block they are the member's again."""
        _, mapped = self._rooms[lent.room]
        try:
            yield lent.arrays(mapped)
        finally:
            kernels().set_word(mapped.view(0, 8).view(np.uint64), 0)
