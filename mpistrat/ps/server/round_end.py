"""`RoundEnd`: apply what the functions of a synchronous round have staged, or nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.ps.server.context import ServerContext
from mpistrat.ps.server.optimizer_update import OptimizerUpdate
from mpistrat.ps.server.staged_updates import StagedUpdates

__all__ = ["RoundEnd"]


class RoundEnd:
    """The end of a round on one ps, in two steps: sum and check, then apply.

    The chief lets the ps apply only after the first step went well on all of them.

    Parameters
    ----------
    context
        Of the ps.

    Attributes
    ----------
    staged
        The updates of the round that is under way.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.staged = StagedUpdates()
        self._summed: list[tuple[int, OptimizerUpdate | None]] = []  # not applied so far
        self._spoilt = ""  # why a round cannot be applied any more

    def sum(self, calls: Sequence[int]) -> None:
        """Sum what some calls staged; raise if a variable of it is not there."""
        # If something raises below, `apply` has nothing to do, rather than the round before.
        self._summed = []
        summed = self.staged.end(calls)
        for key, update in summed:
            self._context.shard(key)
            for slot in update.slots.values() if update is not None else ():
                self._context.shard(slot)
        self._summed = summed

    def apply(self) -> str:
        """Make one update of each variable, with the sums of a round.

        Returns
        -------
        str
            For what there was no memory, or "". What is left then is done by another call, unless
            a variable was half updated.
        """
        while self._summed and not self._spoilt:
            key, update = self._summed[0]
            before = self._versions(key, update)
            try:
                self._apply_one(key, update)
            except MemoryError as error:
                lacking = f"{self._context.me} lacks memory to update variable {key}: {error}"
                if self._versions(key, update) == before:
                    return lacking
                self._spoilt = f"{lacking}; it is half updated"  # in place, without a copy
            else:
                del self._summed[0]  # its gradient's memory is there for the next one
        return self._spoilt

    def _apply_one(self, key: int, update: OptimizerUpdate | None) -> None:
        if update is None:
            self._context.count_up(key)
        else:
            update.apply(self._context, key)

    def _versions(self, key: int, update: OptimizerUpdate | None) -> list[int]:
        """Return the versions of all that an update changes."""
        slots = update.slots.values() if update is not None else ()
        return [self._context.shard(one).version for one in (key, *slots)]
