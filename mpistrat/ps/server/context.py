"""`ServerContext`: the shards of a parameter server, as its operations find them."""

from __future__ import annotations

from typing import Any

from mpistrat.errors import UsageError
from mpistrat.ps.storage.shard import Shard
from mpistrat.ps.transport.roles import Member

__all__ = ["ServerContext"]


class ServerContext:
    """What a ps keeps; also the first argument of functions that a member runs there.

    Parameters
    ----------
    me
        The ps.

    Attributes
    ----------
    shards
        By the keys of their variables.
    staged
        Values that one such function keeps for a later one, by any name.
    """

    def __init__(self, me: Member) -> None:
        self.me = me
        self.shards: dict[int, Shard] = {}
        self.staged: dict[str, Any] = {}

    def shard(self, key: int) -> Shard:
        """Return the shard of a variable.

        Raises
        ------
        UsageError
            There is none under this key.
        """
        if key not in self.shards:
            raise UsageError(f"{self.me} has no variable {key}; it was deleted")
        return self.shards[key]

    def count_up(self, key: int) -> int:
        """Add one to a counter; return its value before."""
        shard = self.shard(key)
        number = int(shard.read())
        shard.assign(shard.dtype.type(number + 1))
        return number

    def close(self) -> None:
        """Give the memory back at once: cycles of references would keep it in one process."""
        for shard in self.shards.values():
            shard.close()
        self.shards.clear()
