"""Read tensors that all ranks restore once: each rank a share, which all gather then.

A checkpoint comes from the file system once, and not once for each rank, and each byte of it is
compared with its digest on one rank. Besides what it restores, a rank holds its share, which
becomes less with each batch of tensors, and the memory for one batch.

The tensors are laid end to end, in one order on all ranks; a piece of a tensor, as a file has it,
is read by the rank in whose equal share of all bytes its middle lies.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpistrat.checkpoint.files.data_files import DataFiles
from mpistrat.checkpoint.files.dtypes import as_dtype, flat_bytes
from mpistrat.checkpoint.objects.saveable import row_count
from mpistrat.collectives import Communicator
from mpistrat.types import Array

__all__ = ["BATCH_BYTES", "SharedReading", "digest_of"]

BATCH_BYTES = 16 << 20
"""Tensors are gathered together up to so many bytes; a longer one alone."""

_ALIGNMENT = 64  # bytes: where a tensor begins
_CHUNK_BYTES = 64 << 20  # of a longer one, in one call
_SLOW_BYTES_PER_S = 10e6  # a rank reads faster than that, unless something is wrong


class _Piece(NamedTuple):
    """Some rows of a tensor, as one file has them, and where their bytes are in a batch."""

    tensor: str
    entry: Mapping[str, Any]
    start: int
    stop: int
    reader: int


class _Tensor(NamedTuple):
    """A tensor, and where it is in a batch."""

    key: str
    start: int
    stop: int


class _Batch(NamedTuple):
    """Tensors that are gathered together."""

    tensors: list[_Tensor]
    pieces: list[_Piece]

    @property
    def nbytes(self) -> int:
        return self.tensors[-1].stop

    def begin_of(self, rank: int) -> int:
        """Return where the bytes begin that `rank` brings: they end where the next one's begin."""
        found = (one.start for one in self.pieces if one.reader >= rank)
        return next(found, self.nbytes)


def digest_of(keys: Sequence[str]) -> str:
    """Return what is equal on two ranks if they read the same tensors of a checkpoint."""
    return hashlib.sha256(repr(keys).encode()).hexdigest()


class SharedReading:
    """The tensors that all ranks restore, and this rank's share of reading them.

    Parameters
    ----------
    index
        Of the checkpoint, the same on all ranks.
    keys
        Names of the tensors, each once, the same on all ranks.
    rank, size
        This rank, and the number of ranks.
    """

    def __init__(
        self, index: Mapping[str, Any], keys: Sequence[str], rank: int, size: int
    ) -> None:
        self._index, self._keys = index["tensors"], dict.fromkeys(keys)
        self._rank, self._size = rank, size
        self._batches = list(self._laid())
        self._brought: deque[Array] = deque()  # of each batch, the bytes that this rank has read
        self._buffer = np.empty(0, np.uint8)
        self._targets: defaultdict[str, list[Array]] = defaultdict(list)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    @property
    def longest_s(self) -> float:
        """How long the longest share may take to be read, in seconds, on a slow file system."""
        shares = [0] * self._size
        for batch in self._batches:
            for one in batch.pieces:
                shares[one.reader] += one.stop - one.start
        return max(shares) / _SLOW_BYTES_PER_S

    def read(self, files: DataFiles) -> None:
        """Read and check this rank's share. **Local.**

        Raises
        ------
        CheckpointError
            A file is missing, cut off or changed.
        """
        for batch in self._batches:
            self._brought.append(self._read(batch, files))

    def _read(self, batch: _Batch, files: DataFiles) -> Array:
        """Read what this rank brings of a batch; bytes between tensors are zero."""
        begin, end = (batch.begin_of(rank) for rank in (self._rank, self._rank + 1))
        own = [one for one in batch.pieces if one.reader == self._rank]
        rows = (flat_bytes(files.piece(one.tensor, one.entry)) for one in own)
        if len(own) == 1 and (own[0].start, own[0].stop) == (begin, end):
            return next(rows)
        brought = np.zeros(end - begin, np.uint8)
        for one, some in zip(own, rows, strict=True):
            brought[one.start - begin : one.stop - begin] = some
        return brought

    def target(self, key: str) -> Array:
        """Return new memory for a tensor, which `gathered` fills. **Local.**"""
        entry = self._index[key]
        found: Array = np.empty(entry["shape"], as_dtype(entry["dtype"]))
        self._targets[key].append(found)
        return found

    def reserve(self) -> None:
        """Allocate what `gathered` needs besides, once all targets are known. **Local.**"""
        sizes = [batch.nbytes for batch in self._batches if self._own_memory(batch) is None]
        self._buffer = np.empty(max(sizes, default=0), np.uint8)

    def _own_memory(self, batch: _Batch) -> Array | None:
        """Return a target of the only tensor of a batch, as bytes, if it has one."""
        targets = self._targets.get(batch.tensors[0].key)
        return flat_bytes(targets[0]) if targets and len(batch.tensors) == 1 else None

    def gathered(self, communicator: Communicator) -> Iterator[tuple[str, Array]]:
        """Yield all tensors, once all ranks have read their shares. **Collective.**

        A tensor is a view of memory that the next one may overwrite, unless it is a target. All
        ranks have to take all of them.
        """
        for batch in self._batches:
            whole = self._gathered(batch, self._brought.popleft(), communicator)
            for key, start, stop in batch.tensors:
                entry = self._index[key]
                found = whole[start:stop].view(as_dtype(entry["dtype"])).reshape(entry["shape"])
                for target in self._targets.get(key, ()):
                    if not np.may_share_memory(target, found):
                        np.copyto(target, found)
                yield key, found

    def _gathered(self, batch: _Batch, brought: Array, communicator: Communicator) -> Array:
        memory = self._own_memory(batch)
        whole = self._buffer[: batch.nbytes] if memory is None else memory
        first, last = batch.pieces[0].reader, batch.pieces[-1].reader
        if first < last and 0 < batch.nbytes <= BATCH_BYTES:
            return communicator.allgather(brought, out=whole)
        if memory is None and first == last == self._rank:
            whole = brought  # which is all of it
        elif brought.size:
            begin = batch.begin_of(self._rank)
            np.copyto(whole[begin : begin + brought.size], brought)
        for reader in range(first, last + 1):
            begin, end = batch.begin_of(reader), batch.begin_of(reader + 1)
            self._broadcast(whole[begin:end], reader, communicator)
        return whole

    @staticmethod
    def _broadcast(array: Array, root: int, communicator: Communicator) -> None:
        """Broadcast bytes by calls that each end long before a deadline, on slow networks, too."""
        for at in range(0, array.size, _CHUNK_BYTES):
            part = array[at : at + _CHUNK_BYTES]
            communicator.bcast(part, root, out=part)

    # ---------------------------------------------------------------------------------- layout

    def _laid(self) -> Iterator[_Batch]:
        total = sum(map(self._nbytes, self._keys))
        batch, at, before = _Batch([], []), 0, 0
        for key in self._keys:
            nbytes = self._nbytes(key)
            if batch.tensors and at + nbytes > BATCH_BYTES:
                yield batch
                batch, at = _Batch([], []), 0
            batch.tensors.append(_Tensor(key, at, at + nbytes))
            batch.pieces.extend(self._pieces(key, at, before, max(total, 1)))
            before += nbytes
            at = -(-(at + nbytes) // _ALIGNMENT) * _ALIGNMENT
        if batch.tensors:
            yield batch

    def _pieces(self, key: str, at: int, before: int, total: int) -> Iterator[_Piece]:
        """Yield the pieces of a tensor at `at` of its batch, with `before` bytes before it."""
        row_bytes = _row_bytes(self._index[key])
        for entry in self._index[key]["pieces"]:
            start, stop = (row * row_bytes for row in entry["rows"])
            reader = (2 * before + start + stop) * self._size // (2 * total)
            yield _Piece(key, entry, at + start, at + stop, min(reader, self._size - 1))

    def _nbytes(self, key: str) -> int:
        return row_count(self._index[key]["shape"]) * _row_bytes(self._index[key])


def _row_bytes(entry: Mapping[str, Any]) -> int:
    count: int = math.prod(entry["shape"][1:])
    return count * as_dtype(entry["dtype"]).itemsize
