"""`Shard`: what one parameter server owns of a variable.

One process, the owner, changes it; readers get whole states of it, in the same process or, in
place, in others of the same machine (`ShardReader`). A change is all there or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, UsageError
from mpistrat.ps.storage.locked_store import LockedStore
from mpistrat.ps.storage.memory import PrivateMemory, SharedMemory, attach, namespace
from mpistrat.ps.storage.shard_reader import ShardReader
from mpistrat.ps.storage.shared_store import OwnedStore, StoreReader
from mpistrat.system.kernels import why_no_kernels
from mpistrat.system.log import get_logger, warn_once
from mpistrat.system.processes.process_tag import my_tag
from mpistrat.tables import rows as row_functions
from mpistrat.tables.rows import check_result
from mpistrat.tables.rule import Rule
from mpistrat.types import Array, ArrayLike

__all__ = ["Shard", "ShardReader"]

Handle: TypeAlias = tuple[Any, ...]

_LOG = get_logger(__name__)
_OWN_NS = 2_000_000  # of a read in the owner; then it waits for its turn, as changes do


class Shard(ShardReader):
    """An array that its owner changes while others read it.

    Parameters
    ----------
    value
        The first value; copied.
    shared
        Whether other processes of this machine can read it in place (see `handle`). Where there
        is no memory for that, a warning says so, and they have to ask the owner.
    """

    _store: OwnedStore | LockedStore
    _whole_ns = _each_ns = _OWN_NS

    def __init__(self, value: ArrayLike, *, shared: bool = True) -> None:
        array = as_array(value)
        self._owner = my_tag()
        self._why_private = why_no_kernels() or ("" if shared else "made with shared=False")
        self._store = LockedStore(array) if why_no_kernels() else self._native(array)

    def _native(self, array: Array) -> OwnedStore:
        num_rows = array.shape[0] if array.shape else 1
        row_bytes = math.prod(array.shape[1:]) * array.itemsize
        if not self._why_private:
            try:
                return OwnedStore(SharedMemory.create(num_rows, row_bytes), array)
            except OSError as error:
                self._why_private = f"no shared memory for {array.nbytes} bytes: {error}"
                warn_once(_LOG, "memory", f"{self._why_private}; readers have to ask this process")
        return OwnedStore(PrivateMemory(num_rows, row_bytes), array)

    def handle(self) -> Handle:
        """Return what `attach` wants in another process; a picklable tuple."""
        if self._why_private or isinstance(self._store, LockedStore):
            return (self._why_private,)
        memory = self._store.memory
        where = memory.where() if isinstance(memory, SharedMemory) else None
        return ("", namespace(), self._owner, where, self.shape, self.dtype)

    @staticmethod
    def attach(handle: Handle) -> ShardReader:
        """Return a reader, in place, of another process's shard.

        Raises
        ------
        BackendUnavailableError
            It is on another machine, in memory that is not shared, or hidden from this process;
            ask its owner for copies.
        """
        if handle[0]:
            raise BackendUnavailableError(
                f"the shard is not in shared memory: {handle[0]}; ask its owner for copies"
            )
        _, space, owner, where, shape, dtype = handle
        if space != namespace():
            raise BackendUnavailableError(
                f"the shard is on {space}, this process on {namespace()}; ask its owner for copies"
            )
        return ShardReader(StoreReader(attach(where), shape, dtype), owner)

    def close(self) -> None:
        """Let no others attach."""
        if isinstance(self._store, OwnedStore):
            self._store.memory.close()

    def _check(self, what: str) -> None:
        self._store.check_process()

    # ------------------------------------------------------------------------------- changes

    def assign(self, value: ArrayLike) -> None:
        """Replace the whole.

        Raises
        ------
        UsageError
            Another shape.
        ArgumentTypeError
            A dtype that cannot become the shard's.
        """
        self._check("assign")
        self._store.fill(self._checked_value(value, self.shape, "assign"))

    def add(self, value: ArrayLike) -> None:
        """Add an array of the same shape; raises as `assign`."""
        self._check("add")
        self._store.sum(self._checked_value(value, self.shape, "add"))

    def assign_rows(self, rows: ArrayLike, values: ArrayLike) -> None:
        """Replace rows; of one that comes twice, the last counts.

        Parameters
        ----------
        rows
            Indices of shape [n].
        values
            Shape [n, ...].

        Raises
        ------
        UsageError
            An index is no row, or `values` has another shape. Nothing was changed.
        """
        self._change_rows(rows, values, self._store.put, "assign_rows")

    def add_rows(self, rows: ArrayLike, values: ArrayLike) -> None:
        """Add to rows; to one that comes twice, twice. As `assign_rows`.

        Half types are accumulated as float32 and rounded once.
        """
        self._change_rows(rows, values, self._store.add, "add_rows")

    def apply(
        self,
        rule: Rule,
        slots: Mapping[str, Shard],
        gradient: ArrayLike,
        step: int,
        learning_rate: float,
    ) -> None:
        """Apply one update of an optimizer's rule; the arguments are those of `Rule.apply`.

        If the rule raises, nothing is changed: readers keep the old variable and slots, unless
        there was no memory for another one (see `OwnedStore`).
        """
        gradient = _checked_shape(gradient, self.shape, "apply")
        with ExitStack() as stack:
            changed = {n: stack.enter_context(slot.replacing()) for n, slot in slots.items()}
            variable = stack.enter_context(self.replacing())
            rule.apply_apart(variable, changed, gradient, step, learning_rate)

    def apply_rows(
        self,
        rule: Rule,
        slots: Mapping[str, Array],
        rows: ArrayLike,
        gradient: ArrayLike,
        step: int,
        learning_rate: float,
    ) -> None:
        """Apply one update with a gradient of some rows, each once (see `Rule.apply_rows`).

        Rows of the shard and of the slots are read, updated and written back; the others stay, if
        the rule leaves them.
        """
        self._check("apply_rows")
        indices = self._checked_rows(rows, "apply_rows")
        gradient = _checked_shape(gradient, (indices.size, *self.shape[1:]), "apply_rows")
        wrong = row_functions.first_wrong(indices, self.shape[0])
        self._check_rows_result(wrong, indices, "apply_rows")
        if not rule.leaves_rows:
            with self.rewriting() as array:
                rule.apply_rows(array, slots, indices, gradient, step, learning_rate)
            return
        # Read, updated and written back under one lock, or a change between would be lost.
        with self._store.lock:
            part = self.read_rows(indices)
            kept = {name: np.empty(part.shape, slot.dtype) for name, slot in slots.items()}
            for name, slot in slots.items():
                row_functions.take_rows(slot, indices, kept[name])
            rule.apply(part, kept, gradient, step, learning_rate)
            self._store.put(indices, part)
            for name, slot in slots.items():
                row_functions.put_rows(slot, indices, kept[name])

    @contextmanager
    def rewriting(self) -> Iterator[Array]:
        """Give the array to change in any way; all see the change when the block ends.

        Others go on reading meanwhile, but other changes wait. If the block raises an error,
        nothing is changed.
        """
        self._check("rewriting")
        with self._store.rewriting() as array:
            yield array

    @contextmanager
    def replacing(self) -> Iterator[tuple[Array, Array]]:
        """Give the array, to be read, and one that replaces it when the block ends.

        All of the latter is to be written; it may be the same one. Otherwise as `rewriting`.
        """
        self._check("replacing")
        with self._store.replacing() as arrays:
            yield arrays

    def _change_rows(self, rows: ArrayLike, values: ArrayLike, change: Any, what: str) -> None:
        self._check(what)
        indices = self._checked_rows(rows, what)
        new = self._checked_value(values, (indices.size, *self.shape[1:]), what)
        result = change(indices, new)
        self._check_rows_result(result, indices, what)
        check_result(result, what)

    def _checked_value(self, value: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
        array = _checked_shape(value, shape, what)
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ArgumentTypeError(
                f"{what}: a value of dtype {array.dtype} for a shard of {self.dtype}; convert it"
                " with astype"
            )
        return np.ascontiguousarray(array, self.dtype)


def _checked_shape(value: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    array = as_array(value)
    if array.shape != shape:
        raise UsageError(f"{what}: a value of shape {array.shape}; expected {shape}")
    return array
