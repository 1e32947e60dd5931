"""Read an array consistently while another thread or process changes it.

It gets whole states: a copy is of one version, and a view keeps its version for as long as it is
held. Nobody waits for a reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.arrays.results import check_out
from mpistrat.errors import ArgumentTypeError, PeerLostError, TornReadError, UsageError
from mpistrat.ps.storage.locked_store import LockedStore
from mpistrat.ps.storage.shared_store import StoreReader, gather
from mpistrat.system.liveness.tagged_process import has_ended
from mpistrat.system.processes.process_tag import pid_of
from mpistrat.tables.rows import DONE
from mpistrat.types import Array, ArrayLike

__all__ = ["ShardReader"]

# Of a read in another process; then its owner is to make the copy. A single row is in work for a
# moment, but in that its owner may lose its processor to others.
_WHOLE_NS, _EACH_NS = 20_000_000, 1_000_000_000


class ShardReader:
    """An array that another process, or another thread, changes.

    Made by `Shard.attach`.

    Notes
    -----
    Every method may be called from any thread. Rows are indices along axis 0.
    """

    _store: StoreReader | LockedStore
    _whole_ns, _each_ns = _WHOLE_NS, _EACH_NS

    def __init__(self, store: StoreReader, owner: int) -> None:
        self._store, self._owner = store, owner

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._store.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._store.dtype

    @property
    def version(self) -> int:
        """How many changes were made."""
        self._check("version")
        return self._store.version

    def read(self, out: Array | None = None, *, whole: bool = True) -> Array:
        """Return a copy.

        Parameters
        ----------
        out
            Where to put it: a writeable array of the same shape and dtype.
        whole
            Whether all of it is of one version. Else every row is, which is had however often
            the shard is changed meanwhile.

        Raises
        ------
        TornReadError
            In another process than the owner: it changed for as long as was tried; ask the owner.
        PeerLostError
            The owner has ended.
        """
        self._check("read")
        check_out(out, self.shape, self.dtype, "read")
        to = _landing(out, self.shape, self.dtype)
        self._check_read(self._store.read(to, whole, self._budget_ns(whole)), "read")
        return _delivered(to, out)

    def read_rows(self, rows: ArrayLike, out: Array | None = None, *, whole: bool = True) -> Array:
        """Return copies of some rows.

        Parameters
        ----------
        rows
            Indices of shape [n]; one may come twice.
        out
            Where to put them: a writeable array of shape [n, ...].
        whole
            Whether all of them are of one version; else every row is (see `read`).

        Raises
        ------
        UsageError
            An index is no row.
        TornReadError, PeerLostError
            See `read`.
        """
        self._check("read_rows")
        indices = self._checked_rows(rows, "read_rows")
        shape = (indices.size, *self.shape[1:])
        check_out(out, shape, self.dtype, "read_rows")
        to = _landing(out, shape, self.dtype)
        result = self._store.take(indices, to, whole, self._budget_ns(whole))
        self._check_rows_result(result, indices, "read_rows")
        self._check_read(result, "read_rows")
        return _delivered(to, out)

    @staticmethod
    def gather(readers: Sequence[ShardReader], edges: Array, rows: Array, out: Array) -> None:
        """Copy rows of a table in parts, in one pass.

        Parameters
        ----------
        readers
            Of the parts, in their order; made by `Shard.attach`.
        edges
            The first row of each part, and after them the number of all rows; int64.
        rows
            Indices of shape [n].
        out
            Where to put them: shape [n, ...], in C order.

        Raises
        ------
        UsageError
            An index is no row.
        TornReadError, PeerLostError
            See `read`. What comes from one part is of one version of it.
        """
        first = readers[0]
        for one in readers:
            one._check("gather")
        indices = first._checked_rows(rows, "gather")
        stores = [one._store for one in readers]
        result = gather(stores, edges, indices, out, first._whole_ns)
        if result >= 0:
            raise UsageError(
                f"gather: row {indices[result]} at position {result} of {indices.size} is not in"
                f" a table of {edges[-1]}; expected 0 to {edges[-1] - 1}"
            )
        if result != DONE:
            for one in readers:  # any of them may be the one whose owner has ended
                one._check("gather")
        first._check_read(result, "gather")

    @contextmanager
    def view(self) -> Iterator[Array]:
        """Lend the array itself, read-only, as it is now; changes go to other memory meanwhile.

        Once the block has ended, the array's contents are of no version.

        Raises
        ------
        TornReadError, PeerLostError
            See `read`.

        Notes
        -----
        **Local**. No copy, but where views of many versions are held at once. A process that ends
        in the block, however it ends, gives back what it held.
        """
        self._check("view")
        with self._store.view(self._budget_ns(False)) as lent:
            array = self.read() if lent is None else lent
            array.flags.writeable = False
            yield array

    def close(self) -> None:
        """Use it no more; of the owner: let no others attach. What is mapped stays. Idempotent."""

    # ------------------------------------------------------------------------------- checks

    def _budget_ns(self, whole: bool) -> int:
        return self._whole_ns if whole else self._each_ns

    def _check(self, what: str) -> None:
        """Raise unless this process may use it and its owner lives."""
        self._store.check_process()
        if has_ended(self._owner):
            raise PeerLostError(
                f"{what}: process {pid_of(self._owner)}, the owner of a shard of shape"
                f" {self.shape}, has ended; restore the variable from a checkpoint"
            )

    def _check_read(self, result: int, what: str) -> None:
        if result == DONE:
            return
        # An owner that died in the middle of a change leaves it unfinished: that is a
        # PeerLostError.
        self._check(what)
        raise TornReadError(
            f"{what}: a shard of shape {self.shape} was changed for as long as was tried; ask its"
            " owner for a copy"
        )

    def _checked_rows(self, rows: ArrayLike, what: str) -> Array:
        array = as_array(rows)
        if array.size == 0 and array.ndim == 1:
            array = array.astype(np.int64)  # an empty list is of floats
        if array.dtype.kind not in "iu" or array.ndim != 1 or not self.shape:
            raise ArgumentTypeError(
                f"{what}: rows of dtype {array.dtype} and shape {array.shape} of a shard of shape"
                f" {self.shape}; expected whole numbers of shape [n], and a shard with rows"
            )
        return np.ascontiguousarray(array, np.int64)

    def _check_rows_result(self, result: int, rows: Array, what: str) -> None:
        if result < 0:
            return
        raise UsageError(
            f"{what}: row {rows[result]} at position {result} of {rows.size} is not in a shard of"
            f" {self.shape[0]}; expected 0 to {self.shape[0] - 1}"
        )


def _landing(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return memory in C order for a result: that of `out`, or new one."""
    return out if out is not None and out.flags.c_contiguous else np.empty(shape, dtype)


def _delivered(result: Array, out: Array | None) -> Array:
    if out is None or result is out:
        return result
    out[...] = result
    return out
