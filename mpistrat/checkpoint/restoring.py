"""Restore a checkpoint: all ranks read and check all of it before any object changes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpistrat.checkpoint.files import index, plain_values
from mpistrat.checkpoint.objects.graph import Graph
from mpistrat.checkpoint.objects.matching import Matches
from mpistrat.checkpoint.objects.states import decode_state
from mpistrat.checkpoint.ranks.kept_by_servers import Kept
from mpistrat.checkpoint.ranks.saving_ranks import SavingRanks
from mpistrat.checkpoint.ranks.tensors import Tensors
from mpistrat.errors import CommunicationError, MismatchError
from mpistrat.system import log

_LOG = log.get_logger(__name__)

__all__ = ["Outcome", "check_path", "restore"]


@dataclass(frozen=True)
class Outcome:
    """The result of a restore, over all ranks.

    Attributes
    ----------
    restored
        How many tensors, states and numbers.
    missing
        What a rank's program has and the checkpoint has not.
    unused
        What the checkpoint has and no rank's program.
    """

    restored: int
    missing: list[str]
    unused: list[str]


def restore(graph: Graph, path: Path, ranks: SavingRanks) -> Outcome:
    """Restore the objects of `graph` from the checkpoint at `path`. **Collective** over `ranks`.

    Raises
    ------
    CheckpointNotFoundError
        There is no complete checkpoint.
    CheckpointError
        It is corrupt; the message, the same on all ranks, names the file. Nothing was changed.
    UsageError
        A tensor has another shape or dtype than in the checkpoint. Nothing was changed.
    """
    what = f"restoring {path}"
    check_path(str(path), ranks)
    found = ranks.take_first(what, lambda: index.read(path))
    tensors = Tensors(path, found)
    # The graph's errors are raised here, since an error of one rank in `take` is one of all.
    matches = tensors.match(what, graph, ranks)
    plan = _Plan(secrets.token_hex(6))
    try:
        everyone = ranks.take(what, lambda: _prepare(matches, path, found, tensors, plan))
        # Nothing has changed so far; from here on only what ends can make ranks differ.
        error = tensors.gather(ranks)
        ranks.take(what, lambda: plan.carry_out(error))
    except BaseException:
        # Servers keep what they have staged until they are told to drop it.
        plan.give_up()
        raise
    # A rank may hold no part of what others restore.
    return Outcome(
        sum(one.restored for one in everyone),
        list(dict.fromkeys(name for one in everyone for name in one.missing)),
        [name for name in everyone[0].unused if all(name in one.unused for one in everyone)],
    )


def check_path(path: str | None, ranks: SavingRanks) -> None:
    """Raise on every rank unless all of them restore from the same path.

    Raises
    ------
    MismatchError
        They do not.
    """
    paths = ranks.take("restoring", lambda: path)
    for rank, one in enumerate(paths):
        if one != paths[0]:
            raise MismatchError(
                f"restoring from {paths[0]} on rank 0 and from {one} on rank {rank}; expected the"
                " same path on all ranks",
                {0: str(paths[0]), rank: str(one)},
            )


class _Plan:
    """The assignments that are left to do once all values are read and checked."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._actions: list[Callable[[], Any]] = []
        self._kept = Kept([])

    def add(self, function: Callable[[Any], Any], value: Any) -> None:
        self._actions.append(lambda: function(value))

    def stage(self, kept: Kept, path: Path, found: Mapping[str, Any]) -> None:
        self._kept = kept
        kept.stage(path, found, self._token)

    def carry_out(self, error: Exception | None) -> None:
        """Make the assignments; raise an error of those that were made before."""
        if error is not None:
            raise error
        for action in self._actions:
            action()
        self._kept.commit(self._token)  # last: servers may be gone, this rank's arrays not

    def give_up(self) -> None:
        try:
            self._kept.drop(self._token)
        except CommunicationError as error:  # a server that is gone has no staged values
            _LOG.warning("what was read of a checkpoint stays: %s", error)


def _prepare(
    matches: Matches, path: Path, found: Mapping[str, Any], tensors: Tensors, plan: _Plan
) -> Outcome:
    """Read the matched values into new memory, and plan their assignment."""
    for part, key in matches.parts:
        if part.keeper is None and not tensors.restore_later(part, key):
            plan.add(part.write, tensors.load(key, part))
    for node, entry in matches.states:
        names = entry.get("tensors", {})
        state = decode_state(entry["state"], lambda name, names=names: tensors.load(names[name]))  # type: ignore[misc]
        plan.add(node.thing.load_state_dict, state)
    for node, value in matches.values:
        if node.set_value is not None:
            plan.add(node.set_value, plain_values.decode(value))
    tensors.reserve()
    plan.stage(Kept((key, part) for part, key in matches.parts), path, found)
    count = len(matches.parts) + len(matches.states) + len(matches.values)
    return Outcome(count, matches.missing, matches.unused)
