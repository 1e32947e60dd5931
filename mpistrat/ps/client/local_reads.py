"""Read a shard: in place on the same machine, else by a request to the ps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from mpistrat.errors import BackendUnavailableError, TornReadError
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import ShareHandle
from mpistrat.ps.storage.shard import Shard, ShardReader
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array

__all__ = ["LocalReader"]

T = TypeVar("T")


class LocalReader:
    """A shard of a ps, as a member of the job reads it.

    Parameters
    ----------
    client
        The member's.
    ps
        The index of the ps.
    key
        By what it knows the shard.

    Notes
    -----
    A method returns None where the ps has to be asked: it is on another machine, or has no shared
    memory, or changed the shard for as long as was tried. What this member has sent before is done
    before it reads.
    """

    def __init__(self, client: Client, ps: int, key: int) -> None:
        self._client, self._ps, self._key = client, ps, key
        self._reader: ShardReader | None = None
        self._is_known = False

    def leave(self) -> None:
        """Give the mapping back; what was lent keeps it for as long as it is held."""
        self._reader, self._is_known = None, False

    def read(self, seen: int, out: Array | None = None) -> tuple[int, Array | None] | None:
        """Return a version and the value, or with None for it if the version is `seen`.

        Parameters
        ----------
        seen
            A version, or -1.
        out
            Where to put it, in C order.
        """

        def read(reader: ShardReader) -> tuple[int, Array | None]:
            version = reader.version  # of before: the value may be later, never earlier
            return version, None if version == seen else reader.read(out)

        return self._try(read)

    def read_rows(self, rows: Array) -> Array | None:
        """Return copies of some rows."""
        return self._try(lambda reader: reader.read_rows(rows))

    @staticmethod
    def gather(parts: Sequence[LocalReader], ranges: RowRanges, rows: Array, out: Array) -> bool:
        """Copy rows of a table in parts; tell whether that was possible (see `ShardReader`)."""
        readers = [part._found() for part in parts]
        found = [reader for reader in readers if reader is not None]
        if len(found) < len(parts):
            return False
        for part in parts:
            part._client.settle(part._ps)
        try:
            ShardReader.gather(found, ranges.edges, rows, out)
        except TornReadError:
            return False
        return True

    @contextmanager
    def view(self) -> Iterator[Array | None]:
        """Lend the memory itself, read-only, as it is now."""
        reader = self._found()
        if reader is None:
            yield None
            return
        self._client.settle(self._ps)
        with reader.view() as array:
            yield array

    def _try(self, read: Callable[[ShardReader], T]) -> T | None:
        reader = self._found()
        if reader is None:
            return None
        self._client.settle(self._ps)
        try:
            return read(reader)
        except TornReadError:
            return None

    def _found(self) -> ShardReader | None:
        if not self._is_known:
            handle = self._client.ask(self._ps, ShareHandle(self._key))
            try:
                self._reader = Shard.attach(handle)
            except BackendUnavailableError:
                self._reader = None  # the ps is asked
            # Known also if there is no reader: the ps is asked for its handle once, not at each
            # read.
            self._is_known = True
        return self._reader
