"""Pass rows to a ps on the same machine through memory that both have mapped.

A member writes rows and their values to a buffer and sends a message that describes them. The ps
reads them in place, then clears the buffer's first word: the member may fill it again. Between
machines, and for few rows, the message carries the rows themselves.
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
from mpistrat.ps.messages import MapBuffer, Question, UnmapBuffer
from mpistrat.ps.storage.memory import check_descriptor, namespace
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.types import Array

__all__ = ["BufferedRows", "MappedBuffers", "OutgoingRows", "PushBuffers"]

_WORD_BYTES = 64  # a cache line of its own: both ends poll it
# Of a push by a buffer.
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 256 << 20
_SMALLEST = 1 << 20
_NUM_BUFFERS = 2  # of a member at a ps: one is filled while the other is read


@dataclass(frozen=True)
class BufferedRows:
    """Where rows are in a push buffer: what a message carries in their place."""

    buffer: str
    count: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer that they need."""
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
class OutgoingRows:
    """Memory for rows on their way to a ps, in a push buffer if there is one.

    Attributes
    ----------
    rows, values
        To be filled: int64 of shape [n], and of shape [n, ...].
    buffered
        To be sent in their place; None if they travel in the message.
    release
        Must be called if they are not sent.
    """

    rows: Array
    values: Array
    buffered: BufferedRows | None = None
    release: Callable[[], None] = lambda: None


class _Buffer:
    """Memory that this member and a ps have mapped; its first word is 1 while it is in use."""

    def __init__(self, mapped: segment.Segment) -> None:
        self.segment, self.name = mapped, mapped.nonce
        self.word = mapped.view(0, 8).view(np.uint64)

    def try_take(self) -> bool:
        """Take it unless it is in use; by one thread at a time."""
        # No compare-and-swap: only this member sets the word to 1, and the caller holds its lock.
        # get_word acquires, and pairs with the set_word of `MappedBuffers.reading`.
        if kernels().get_word(self.word):
            return False
        kernels().set_word(self.word, 1)
        return True

    def release(self) -> None:
        """Free it again; only before the ps was told of its contents."""
        kernels().set_word(self.word, 0)


class PushBuffers:
    """A member's buffers at one ps.

    Parameters
    ----------
    member
        Who this is, in words.
    ask, settle
        Ask the ps something; wait until it has done all that was sent.
    """

    def __init__(
        self, member: str, ask: Callable[[Question[Any]], Any], settle: Callable[[], object]
    ) -> None:
        self._member, self._ask, self._settle = member, ask, settle
        self._buffers: list[_Buffer] = []
        self._lock = threading.Lock()
        self._has_none = why_no_kernels() is not None

    def outgoing_rows(
        self, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> OutgoingRows:
        """Return memory for rows of a shape; wait for the ps if all buffers are unread."""
        wanted = BufferedRows("", count, shape, dtype)
        buffer = None
        if not self._has_none and _LEAST_BYTES <= wanted.nbytes <= _MOST_BYTES:
            with self._lock:
                buffer = self._taken(wanted.nbytes)
        if buffer is None:
            return OutgoingRows(np.empty(count, np.int64), np.empty((count, *shape), dtype))
        buffered = BufferedRows(buffer.name, count, shape, dtype)
        return OutgoingRows(*buffered.arrays(buffer.segment), buffered, buffer.release)

    def close(self) -> None:
        """Give all back; later rows travel in messages. Idempotent."""
        with self._lock:
            self._has_none = True
            self._buffers.clear()

    def _taken(self, nbytes: int) -> _Buffer | None:
        buffer = self._free(nbytes)
        if buffer is None and len(self._buffers) < _NUM_BUFFERS:
            return self._new(nbytes)
        # A free one that is too small is replaced below. If none is free, a Flush frees all that
        # the ps was told of; those that other threads still fill stay taken.
        if buffer is None and not self._is_any_free():
            self._settle()
            buffer = self._free(nbytes)
        return buffer or self._instead_of_a_smaller_one(nbytes)

    def _is_any_free(self) -> bool:
        return any(not kernels().get_word(buffer.word) for buffer in self._buffers)

    def _free(self, nbytes: int) -> _Buffer | None:
        fitting = (one for one in self._buffers if one.segment.nbytes >= nbytes)
        return next((one for one in fitting if one.try_take()), None)

    def _instead_of_a_smaller_one(self, nbytes: int) -> _Buffer | None:
        for buffer in self._buffers:
            if buffer.segment.nbytes < nbytes and buffer.try_take():
                # Removed first: the answer may be the error of an earlier change, and the ps has
                # unmapped then.
                self._buffers.remove(buffer)
                self._ask(UnmapBuffer(buffer.name))
                return self._new(nbytes)
        return None

    def _new(self, nbytes: int) -> _Buffer | None:
        """Make one and let the ps map it; if it cannot, never try again."""
        try:
            # Only the allocation may fail silently: a timeout of the ps below is an OSError, too.
            # A power of two leaves room for later pushes of a few more rows.
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
        buffer = _Buffer(mapped)
        buffer.try_take()
        self._buffers.append(buffer)
        return buffer

    def _ask_to_map(self, mapped: segment.Segment) -> bool:
        """Ask the parameter server to map a buffer; return whether it has."""
        place = namespace(), mapped.path, mapped.nbytes, mapped.nonce
        question = MapBuffer(self._member, *place)
        try:
            return bool(self._ask(question))
        # The ps has ended or does not answer: it cannot be asked to unmap, either.
        except CommunicationError:
            raise
        except Exception:  # raised by an earlier change; the ps has mapped the buffer
            self._ask(UnmapBuffer(mapped.nonce))
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


class MappedBuffers:
    """The push buffers of all members, as a ps has mapped them."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[str, segment.Segment]] = {}

    def map(self, wanted: MapBuffer) -> bool:
        """Map a member's buffer; return False if that is not possible."""
        # The path names the member by its process id, which in another PID namespace is another
        # process.
        if wanted.namespace != namespace():
            return False
        try:
            mapped = segment.open_existing(wanted.path, wanted.nbytes, wanted.name)
        except OSError:
            return False
        try:
            check_descriptor(mapped.descriptor)  # shards need descriptors, too
        except OSError:
            return False
        finally:
            mapped.release_name()
        self._buffers[wanted.name] = wanted.member, mapped
        return True

    def unmap(self, name: str) -> None:
        """Drop the mapping of a buffer."""
        self._buffers.pop(name, None)

    def forget(self, member: str) -> None:
        """Drop the mappings of a member that has ended."""
        for name in [name for name, (owner, _) in self._buffers.items() if owner == member]:
            self.unmap(name)

    def close(self) -> None:
        """Drop all mappings."""
        self._buffers.clear()

    @contextmanager
    def reading(self, buffered: BufferedRows) -> Iterator[tuple[Array, Array]]:
        """Give rows and their values in place; after the block the member may refill it."""
        _, mapped = self._buffers[buffered.buffer]
        try:
            yield buffered.arrays(mapped)
        finally:
            # Also after an error, or the buffer would stay taken. The store releases: all reads of
            # the rows come before the member sees 0 (`_Buffer.try_take`) and writes there again.
            kernels().set_word(mapped.view(0, 8).view(np.uint64), 0)
