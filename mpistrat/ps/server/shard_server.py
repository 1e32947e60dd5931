"""The server loop: it owns shards, and serves requests to read and change them."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpistrat.errors import PeerLostError, UsageError
from mpistrat.ps.server.optimizer_update import OptimizerUpdate
from mpistrat.ps.server.staged_updates import StagedUpdates
from mpistrat.ps.storage.shard import Shard
from mpistrat.ps.transport.endpoint import Endpoint
from mpistrat.ps.transport.push_buffers import BufferedRows, MappedBuffers
from mpistrat.ps.transport.roles import Member
from mpistrat.ps.transport.stream import Stream
from mpistrat.system.log import get_logger
from mpistrat.types import Array

__all__ = ["ServerContext", "ShardServer"]

_LOG = get_logger(__name__)


_UFUNCS = {
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "min": np.minimum,
}


@dataclass(frozen=True)
class ServerContext:
    """The argument of functions that a member runs on a ps: access to what the ps keeps.

    Attributes
    ----------
    shard
        Returns the shard of a variable's key.
    staged
        Values that one function keeps for a later one, by any name.
    """

    shard: Callable[[int], Shard]
    staged: dict[str, Any] = field(default_factory=dict)


class ShardServer:
    """Serves the shards of one ps until the chief says that the job is over.

    Parameters
    ----------
    endpoint
        Of a ps.

    Notes
    -----
    One thread does everything, in the order in which it comes in, so what one member asks for is
    done in its order, and every change is whole. It never waits for a member: what one does not
    take in stays in memory, and the next one's turn comes. A request is ``(number, operation,
    arguments...)``; operations that return something answer ``(number, errors, result)``, where
    the errors are those of all that this member sent since its last answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._shards: dict[int, Shard] = {}
        self._errors: dict[int, list[Exception]] = {}  # by the stream's descriptor
        self._is_over = self._has_lost = False
        self._context = ServerContext(self._shard)
        self._staged = StagedUpdates()
        self._summed: list[tuple[int, OptimizerUpdate | None]] = []  # of the round's end
        self._spoilt = ""  # why a round cannot be applied any more
        self._mapped_buffers = MappedBuffers()
        self._answering: dict[str, Callable[..., Any]] = {
            "make": self._make,
            "read": self._read,
            "read_rows": lambda key, rows: self._shard(key).read_rows(rows),
            "count_up": self._count_up,
            "handle": lambda key: self._shard(key).handle(),
            "all": self._all,
            "flush": lambda: None,
            "sum_round": self._sum_round,
            "end_round": self._end_round,
            "run": lambda function, arguments: function(self._context, *arguments),
            "map_buffer": self._mapped_buffers.map,
            "unmap_buffer": self._mapped_buffers.unmap,
            "end": self._end,
        }
        self._silent: dict[str, Callable[..., None]] = {
            "drop": self._drop,
            "assign": lambda key, value: self._shard(key).assign(value),
            "add": lambda key, value: self._shard(key).add(value),
            "subtract": lambda key, value: self._shard(key).add(_negated(value)),
            "scatter": self._scatter,
            "scatter_buffered": self._scatter_buffered,
            "apply": self._apply,
            "stage": self._staged.add,
            "tell_all": self._tell_all,
        }

    def serve(self) -> bool:
        """Do what comes in until the job is over; tell whether it has lost a member.

        Raises
        ------
        PeerLostError
            The chief has ended, or said that it has failed.
        """
        try:
            self._serve()
        finally:
            self._let_go()
        return self._has_lost

    def _serve(self) -> None:
        poll = select.poll()
        members = {}
        for member, stream in self._endpoint.streams.items():
            members[stream.fileno()] = (member, stream)
            poll.register(stream.fileno(), select.POLLIN)
        while not self._is_over:
            for fd, _ in poll.poll():
                member, stream = members[fd]
                if self._serve_member(member, stream):
                    wanted = select.POLLIN | (select.POLLOUT if stream.has_unsent else 0)
                    poll.modify(fd, wanted)
                else:
                    poll.unregister(fd)

    def _let_go(self) -> None:
        """Give memory back: in one process it would wait for Python to look for cycles."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()
        self._mapped_buffers.close()

    def _serve_member(self, member: Member, stream: Stream) -> bool:
        """Carry out all requests that a member has sent; return whether it is still connected."""
        try:
            stream.flush()
            for request in stream.take():
                self._do(stream, request)
        except PeerLostError:
            if member.task_type == "chief" and not self._is_over:
                for _, operation, *rest in stream.last_words():
                    if operation == "fail":
                        raise stream.failed(rest[0]) from None
                raise
            self._mapped_buffers.forget(str(member))
            _LOG.info("%s: %s has ended", self._endpoint.me, member)
            return False
        return True

    def _do(self, stream: Stream, request: tuple[Any, ...]) -> None:
        number, operation, *arguments = request
        if operation == "fail":
            raise stream.failed(arguments[0])
        errors = self._errors.setdefault(stream.fileno(), [])
        if operation in self._silent:
            try:
                self._silent[operation](*arguments)
            except Exception as error:  # noqa: BLE001 - whoever asked gets it with the next answer
                errors.append(error)
            return
        result = None
        try:
            result = self._answering[operation](*arguments)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            errors.append(error)
        stream.post((number, list(errors), result))
        errors.clear()

    # ----------------------------------------------------------------------------- operations

    def _shard(self, key: int) -> Shard:
        if key not in self._shards:
            raise UsageError(f"{self._endpoint.me} has no variable {key}; it was deleted")
        return self._shards[key]

    def _make(self, key: int, value: Array) -> None:
        self._shards[key] = Shard(value)

    def _drop(self, key: int) -> None:
        self._shards.pop(key, None)

    def _read(self, key: int, known: int) -> tuple[int, Array | None]:
        """Return a version and the value; None if the reader has that version already."""
        shard = self._shard(key)
        version = shard.version
        return version, None if version == known else shard.read()

    def _count_up(self, key: int) -> int:
        """Add one; return what the number was before."""
        shard = self._shard(key)
        number = int(shard.read())
        shard.assign(shard.dtype.type(number + 1))
        return number

    def _scatter(self, key: int, what: str, rows: Array, values: Array) -> None:
        shard = self._shard(key)
        if what == "update":
            shard.assign_rows(rows, values)
        elif what in ("add", "sub"):
            shard.add_rows(rows, values if what == "add" else _negated(values))
        else:
            once, places = np.unique(rows, return_inverse=True)
            part = shard.read_rows(once)
            _UFUNCS[what].at(part, places, values)
            shard.assign_rows(once, part)

    def _scatter_buffered(self, key: int, what: str, buffered: BufferedRows) -> None:
        with self._mapped_buffers.reading(buffered) as (rows, values):
            self._scatter(key, what, rows, values)

    def _apply(self, key: int, update: OptimizerUpdate) -> None:
        """Move a variable by an optimizer's rule; its slots are variables here, too."""
        shard, step = self._shard(key), (update.step, update.learning_rate)
        slots = {name: self._shard(slot) for name, slot in update.slots.items()}
        if update.rows is not None and update.rule.leaves_rows:
            part = shard.read_rows(update.rows)
            kept = {name: slot.read_rows(update.rows) for name, slot in slots.items()}
            update.rule.apply(part, kept, update.gradient, *step)
            shard.assign_rows(update.rows, part)
            for name, slot in slots.items():
                slot.assign_rows(update.rows, kept[name])
            return
        with ExitStack() as stack:
            arrays = {n: stack.enter_context(slot.rewriting()) for n, slot in slots.items()}
            if update.rows is None:
                shard.apply(update.rule, arrays, update.gradient, *step)
            else:
                shard.apply_rows(update.rule, arrays, update.rows, update.gradient, *step)

    def _sum_round(self, calls: list[int]) -> None:
        """Sum what calls gave in a round; all that can be wrong with it is wrong here."""
        self._summed = []
        summed = self._staged.end(calls)
        for key, update in summed:
            self._shard(key)
            for slot in update.slots.values() if update is not None else ():
                self._shard(slot)
        self._summed = summed

    def _end_round(self) -> str:
        """Make one move of each variable, with the sums of a round.

        Returns
        -------
        str
            For what there was no memory, or "". What is left then is done by another call, unless
            a variable has moved by half.
        """
        while self._summed and not self._spoilt:
            key, update = self._summed[0]
            before = self._versions(key, update)
            try:
                self._move(key, update)
            except MemoryError as error:
                lacking = f"{self._endpoint.me} lacks memory to move variable {key}: {error}"
                if self._versions(key, update) == before:
                    return lacking
                self._spoilt = f"{lacking}; it has moved by half"  # in place, without a copy
            else:
                del self._summed[0]  # its gradient's memory is there for the next one
        return self._spoilt

    def _move(self, key: int, update: OptimizerUpdate | None) -> None:
        if update is None:
            self._count_up(key)
        else:
            self._apply(key, update)

    def _versions(self, key: int, update: OptimizerUpdate | None) -> list[int]:
        """Return the versions of all that an update changes."""
        slots = update.slots.values() if update is not None else ()
        return [self._shard(one).version for one in (key, *slots)]

    def _all(self, requests: list[tuple[Any, ...]]) -> list[Any]:
        """Do several things; return what each returns."""
        return [self._answering[operation](*rest) for operation, *rest in requests]

    def _tell_all(self, changes: list[tuple[Any, ...]]) -> None:
        for operation, *rest in changes:
            self._silent[operation](*rest)

    def _end(self, has_lost: bool) -> None:
        self._is_over, self._has_lost = True, has_lost


def _negated(value: Array) -> Array:
    """Return the negative of what has come in a message: nobody else's, but perhaps read-only."""
    return np.negative(value, out=value if value.flags.writeable else None)
