"""A variable on a parameter server: reads are pulls, assignments are pushes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.arrays.buffer_pool import BufferPool
from mpistrat.errors import UsageError
from mpistrat.ps.client.local_reads import LocalReader
from mpistrat.ps.client.row_push import RowPush
from mpistrat.ps.client.run_on_ps import ServerHandle
from mpistrat.ps.messages import Add, Assign, Read, ReadRows, Subtract
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.replicas.replica_context import check_equal
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.options import VariableAggregation, VariableSynchronization
from mpistrat.strategy.variables.replica_assignments import check_rule, combined, one_of_several
from mpistrat.strategy.variables.scatter import check_slices
from mpistrat.tables.row_ranges import RowRanges
from mpistrat.types import Array, ArrayLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from mpistrat.strategy.base import Strategy
    from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["ServedVariable", "VariableSpec"]

# Rows that were read: smaller results the allocator keeps, larger ones would cost too much memory.
# Three are kept: one that the program works with, the one before it, and one more.
_results = BufferPool(least_bytes=1 << 20, most_bytes=64 << 20, most_free=3)
_CHANGES: dict[str, type[Assign | Add | Subtract]] = {
    "assign": Assign,
    "assign_add": Add,
    "assign_sub": Subtract,
}


@dataclass(frozen=True)
class VariableSpec:
    """Describe a variable to the processes of the job: where it is, its shape and its options.

    Attributes
    ----------
    key
        Its number in the job.
    ps
        The index of the ps that keeps it.
    """

    key: int
    ps: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    trainable: bool
    synchronization: VariableSynchronization
    aggregation: VariableAggregation


class ServedVariable(Variable):
    """The variable of a `ParameterServerStrategy`; chief and workers hold the same one.

    Reading returns the current value as a read-only array that later assignments do not change.
    Assignments of a function on a worker have arrived before the function counts as finished.
    Changes by several workers come one after the other, in any order. In ``run`` on a worker with
    several replicas their values become one by `aggregation`; without one that is an error. In a
    replica on a GPU, `value`, `read_value` and lookups of rows are arrays there; `numpy` and
    operators read on the host.

    Parameters
    ----------
    strategy
        The strategy as this process has it.
    spec
        Its shape and options, and the ps that keeps it.
    """

    def __init__(self, strategy: ParameterServerStrategy, spec: VariableSpec) -> None:
        self.distribute_strategy = strategy
        self.spec = spec
        self._name = spec.name
        self._trainable = spec.trainable
        self._synchronization, self._aggregation = spec.synchronization, spec.aggregation
        self._client = strategy.extended.client
        self._seen: tuple[int, Array | None] = (-1, None)  # a version, and the value then
        self._local = LocalReader(self._client, spec.ps, spec.key)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the value."""
        return self.spec.dtype

    @property
    def device(self) -> str:
        """The device string of the ps that keeps it."""
        return self._client.endpoint.roster.ps[self.spec.ps].device

    @property
    def kept(self) -> tuple[ServerHandle, int]:
        """The ps that has it, and its key there; checkpoints are written and read by that ps."""
        return ServerHandle(self._client, self.spec.ps), self.spec.key

    def leave(self) -> None:
        """Unmap the memory that it is read from, at the end of the job."""
        self._local.leave()

    def _read(self) -> Array:
        return self.read_each([self])[0]

    def _taken_in(self, found: tuple[int, Array | None], known: Array | None) -> Array:
        """Return the value that a ps has answered with."""
        version, value = found
        if value is None:  # asked with the version of `known`, which is still the current one
            return known  # type: ignore[return-value]
        value.flags.writeable = False
        # One assignment of a pair, so that another thread never sees a version with another's
        # value.
        self._seen = version, value
        return value

    @classmethod
    def read_each(cls, variables: Sequence[Any]) -> list[Array]:
        """Return the values of several variables; those not in place by one message to each ps."""
        seen = [one._seen for one in variables]  # other threads may read, and see others
        found = [
            one._local.read(version) for one, (version, _) in zip(variables, seen, strict=True)
        ]
        # With a version: a ps sends the value only if ours is not the current one.
        wanted = [
            (one.spec.ps, Read(one.spec.key, version))
            for one, (version, _), answer in zip(variables, seen, found, strict=True)
            if answer is None
        ]
        answers = iter(variables[0]._client.ask_all(wanted))
        return [
            one._taken_in(next(answers) if answer is None else answer, known)
            for one, (_, known), answer in zip(variables, seen, found, strict=True)
        ]

    @classmethod
    def read_joined(cls, variables: Sequence[Any]) -> Array:
        """Return the values of parts as one, copied once where they are read in place."""
        ranges = RowRanges([one.shape[0] for one in variables])
        result = np.empty((ranges.count, *variables[0].shape[1:]), variables[0].dtype)
        places = ranges.split(result)
        # -1 is no version: the value is copied even if this process has seen the current one.
        found = [one._local.read(-1, at) for one, at in zip(variables, places, strict=True)]
        missing = [index for index, answer in enumerate(found) if answer is None]
        if missing:
            values = cls.read_each([variables[index] for index in missing])
            for index, value in zip(missing, values, strict=True):
                places[index][...] = value
        return result

    def _rows(self, rows: Array) -> Array:
        return self.rows_each([self], [rows])[0]

    @classmethod
    def rows_each(cls, variables: Sequence[Any], rows: Sequence[Array]) -> list[Array]:
        """Return some rows of each; those not in place by one message to each ps that has any."""
        found = [
            one._local.read_rows(some) if some.size else np.empty((0, *one.shape[1:]), one.dtype)
            for one, some in zip(variables, rows, strict=True)
        ]
        asked = [index for index, value in enumerate(found) if value is None]
        specs = [variables[index].spec for index in asked]
        wanted = [
            (spec.ps, ReadRows(spec.key, rows[index]))
            for index, spec in zip(asked, specs, strict=True)
        ]
        for index, value in zip(asked, variables[0]._client.ask_all(wanted), strict=True):
            found[index] = value
        return found

    @classmethod
    def rows_of_parts(cls, variables: Sequence[Any], ranges: RowRanges, rows: Array) -> Array:
        """Return some rows of a whole: each copied once, where all parts are read in place."""
        result = _results.empty((rows.size, *variables[0].shape[1:]), variables[0].dtype)
        if LocalReader.gather([one._local for one in variables], ranges, rows, result):
            return result
        return super().rows_of_parts(variables, ranges, rows)

    @contextmanager
    def view(self) -> Iterator[Array]:
        """Lend the current value, read-only, without a copy where the ps is on this machine.

        It does not change within the block, whatever is assigned meanwhile.
        """
        with self._local.view() as array:
            yield self._read() if array is None else array

    def live(self) -> Array:
        """Refuse: the memory is on a ps."""
        raise UsageError(
            f"live() of {self._name!r}, which {self.device} keeps; read it with numpy() and change"
            " it with assign, assign_add, assign_sub or an optimizer"
        )

    # ------------------------------------------------------------------------------- changes

    def assign(self, value: ArrayLike) -> Variable:
        """Set the value, without waiting for the ps; a worker's replicas wait for each other."""
        return self._assign("assign", value)

    def assign_add(self, delta: ArrayLike) -> Variable:
        """Add to the value; waits as `assign` does."""
        return self._assign("assign_add", delta)

    def assign_sub(self, delta: ArrayLike) -> Variable:
        """Subtract from the value; waits as `assign` does."""
        return self._assign("assign_sub", delta)

    def _assign(self, method: str, value: ArrayLike) -> Variable:
        self.change_each(method, [self], [value])
        return self

    def _scatter(self, method: str, sparse_delta: IndexedSlices) -> Self:
        slices = check_slices(self, method, sparse_delta)
        self.scatter_parts(method, [self], RowRanges([self.shape[0]]), slices)
        return self

    @classmethod
    def scatter_parts(
        cls, method: str, variables: Sequence[Any], ranges: RowRanges, slices: IndexedSlices
    ) -> None:
        """Change rows of the parts; each row is copied once, to where its ps reads it."""
        if one_of_several(variables[0].distribute_strategy) is not None:
            raise UsageError(
                f"{method} to variable {variables[0].name!r} in one of a worker's several replicas"
                " has no rule for their rows; gather the rows with all_gather and scatter them in"
                " merge_call, or give them to an optimizer"
            )
        RowPush(variables[0]._client, method.removeprefix("scatter_"), ranges).tell(
            [(one.spec.ps, one.spec.key) for one in variables], slices.indices, slices.values
        )

    @classmethod
    def change_each(cls, method: str, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Change several variables, by one message to each ps."""
        changes = [
            one._change(method, value) for one, value in zip(variables, values, strict=True)
        ]
        replica = one_of_several(variables[0].distribute_strategy)
        if replica is None:
            variables[0]._client.tell_all(changes)
            return
        check_rule(variables[0], method)
        # Checked above, in the replica that gave them: an error is raised there.
        taken = [change.value for _, change in changes]
        replica.merge_call(_change_merged, args=(variables[0], method, list(variables), taken))

    def _change(self, method: str, value: Any) -> tuple[int, Assign | Add | Subtract]:
        """Return what to tell a ps; raise on what does not fit."""
        change = _CHANGES[method](self.spec.key, self._fitting(value, method))
        return self.spec.ps, change

    # --------------------------------------------------------------------------------- travel

    def __reduce__(self) -> Any:
        return _arrive, (self.distribute_strategy, self.spec)

    def __repr__(self) -> str:
        return (
            f"<mpistrat.Variable '{self._name}' shape={self.shape} dtype={self.dtype.name}, on"
            f" {self.device}>"
        )

    __str__ = __repr__


def _change_merged(
    strategy: Strategy, first: ServedVariable, method: str, variables: list[Any], values: list[Any]
) -> None:
    """Change variables once by what the replicas of a worker handed over."""
    check_equal("variables to assign to", first)
    check_equal("ways to assign", method)
    once = [combined(strategy, first.aggregation, value) for value in values]
    first.change_each(method, variables, once)


def _arrive(strategy: ParameterServerStrategy, spec: VariableSpec) -> ServedVariable:
    """Return the variable as the member has it where a reference to it has arrived."""
    return strategy.extended.known_variable(spec)
