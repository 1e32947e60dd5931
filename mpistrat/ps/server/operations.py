"""`Operations`: what a parameter server does for each kind of message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpistrat.ps import messages
from mpistrat.ps.messages import Message, decoded
from mpistrat.ps.server.context import ServerContext
from mpistrat.ps.server.round_end import RoundEnd
from mpistrat.ps.storage.shard import Shard
from mpistrat.ps.transport.push_buffers import MappedBuffers
from mpistrat.ps.transport.roles import Member
from mpistrat.types import Array

__all__ = ["Operations"]

_UFUNCS = {
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "min": np.minimum,
}


class Operations:
    """Carries out messages on the shards of one ps.

    Parameters
    ----------
    me
        The ps.

    Attributes
    ----------
    end
        The message that the job is over, once it has come.
    """

    def __init__(self, me: Member) -> None:
        self.end: messages.End | None = None
        self._context = ServerContext(me)
        self._round = RoundEnd(self._context)
        self._buffers = MappedBuffers()
        context, shard, round_ = self._context, self._context.shard, self._round
        self._by_class: dict[type[Message], Callable[[Any], Any]] = {
            messages.Make: self._make,
            messages.Drop: lambda one: context.shards.pop(one.key, None),
            messages.Read: self._read,
            messages.ReadRows: lambda one: shard(one.key).read_rows(one.rows),
            messages.ShareHandle: lambda one: shard(one.key).handle(),
            messages.Assign: lambda one: shard(one.key).assign(one.value),
            messages.Add: lambda one: shard(one.key).add(one.value),
            messages.Subtract: lambda one: shard(one.key).add(_negated(one.value)),
            messages.Scatter: self._scatter,
            messages.MapBuffer: self._buffers.map,
            messages.UnmapBuffer: lambda one: self._buffers.unmap(one.name),
            messages.ScatterBuffered: self._scatter_buffered,
            messages.CountUp: lambda one: context.count_up(one.key),
            messages.Apply: lambda one: one.update.apply(context, one.key),
            messages.Stage: lambda one: round_.staged.add(one.call, one.key, one.update),
            messages.SumRound: lambda one: round_.sum(one.calls),
            messages.ApplyRound: lambda one: round_.apply(),
            messages.Flush: lambda one: None,  # messages are carried out in their order
            messages.Run: lambda one: one.function(context, *one.arguments),
            messages.Several: self._several,
            messages.ChangeSeveral: self._change_several,
            messages.End: self._end,
        }

    def carry_out(self, message: Message) -> Any:
        """Do what a message says; return the answer, if it is a question."""
        return self._by_class[type(message)](message)

    def forget(self, member: Member) -> None:
        """Drop what belongs to a member that has ended."""
        self._buffers.forget(str(member))

    def close(self) -> None:
        """Give all memory back."""
        self._context.close()
        self._buffers.close()

    # ----------------------------------------------------------------------- by kind of message

    def _make(self, one: messages.Make) -> None:
        self._context.shards[one.key] = Shard(one.value)

    def _read(self, one: messages.Read) -> tuple[int, Array | None]:
        shard = self._context.shard(one.key)
        version = shard.version
        return version, None if version == one.known else shard.read()

    def _scatter(self, one: messages.Scatter) -> None:
        _change_rows(self._context.shard(one.key), one.method, one.rows, one.values)

    def _scatter_buffered(self, one: messages.ScatterBuffered) -> None:
        with self._buffers.reading(one.rows) as (rows, values):
            _change_rows(self._context.shard(one.key), one.method, rows, values)

    def _several(self, one: messages.Several) -> list[Any]:
        return [self.carry_out(decoded(question)) for question in one.questions]

    def _change_several(self, one: messages.ChangeSeveral) -> None:
        for change in one.changes:
            self.carry_out(decoded(change))

    def _end(self, one: messages.End) -> None:
        self.end = one


def _change_rows(shard: Shard, method: str, rows: Array, values: Array) -> None:
    if method == "update":
        shard.assign_rows(rows, values)
    elif method in ("add", "sub"):
        shard.add_rows(rows, values if method == "add" else _negated(values))
    else:
        # ufunc.at applies the values of a repeated row one after the other, where assign_rows
        # would keep the last value only.
        once, places = np.unique(rows, return_inverse=True)
        part = shard.read_rows(once)
        _UFUNCS[method].at(part, places, values)
        shard.assign_rows(once, part)


def _negated(value: Array) -> Array:
    """Return the negative, in place if possible: an array of a message has no other user."""
    return np.negative(value, out=value if value.flags.writeable else None)
