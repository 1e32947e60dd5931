"""Compare the names of new variables over the ranks, in the broadcast of the first value.

Ranks that create variables of one shape in unequal orders, as when each iterates over a set of
names, would give them each other's values and gradients. The name is part of the label of the
call, so that equal names cost nothing. Names may differ in a correct program, too, such as those
with the rank in them: what the ranks called then is judged, on all of them alike, and the value is
sent once more without a name.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from mpistrat.collectives import Communicator
from mpistrat.errors import MismatchError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["NameOrder", "name_of", "named"]

_LOG = get_logger(__name__)
_T = TypeVar("_T")
_Pair: TypeAlias = tuple[str, str]
_LABEL = "the first value of variable"
_CALL = re.compile(rf"(.*?) \({_LABEL} '(.*)'\)", re.DOTALL)
_MOST_KEPT = 1000  # unequal names


class _Local(threading.local):
    name: str | None = None


_local = _Local()


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let variables that are created in this block have another name for this comparison."""
    before, _local.name = _local.name, name
    try:
        yield
    finally:
        _local.name = before


def name_of(given: str | None) -> str:
    """Return the name by which ranks compare a variable with the `given` name. **Local.**"""
    return _local.name or given or "Variable"


class NameOrder:
    """The unequal names of the variables of one strategy; all ranks keep the same.

    Parameters
    ----------
    communicator
        The communicator of the strategy.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        # By rank: names of rank 0 that differ from that rank's, and these.
        self._unequal: dict[int, deque[_Pair]] = defaultdict(lambda: deque(maxlen=_MOST_KEPT))

    def started(self, name: str, begin: Callable[[], Any]) -> Callable[[float | None], Any]:
        """Begin a broadcast; return what waits for its end, given a deadline in seconds.

        Parameters
        ----------
        name
            Of the variable.
        begin
            Begins it, and returns a `Work`. It is called again if only the names differ.
        """
        with self._communicator.labelled(f"{_LABEL} '{name}'"):
            work = begin()

        def finish(timeout: float | None) -> Any:
            return self._unless_names_differ(lambda: work.wait(timeout), begin_again(timeout))

        def begin_again(timeout: float | None) -> Callable[[], Any]:
            return lambda: begin().wait(timeout)

        return finish

    def done(self, name: str, broadcast: Callable[[], _T]) -> _T:
        """Do the same for a broadcast that blocks; return its result."""

        def first() -> _T:
            with self._communicator.labelled(f"{_LABEL} '{name}'"):
                return broadcast()

        return self._unless_names_differ(first, broadcast)

    def _unless_names_differ(self, first: Callable[[], _T], again: Callable[[], _T]) -> _T:
        try:
            return first()
        except MismatchError as error:
            self._judge(error)
        with self._communicator.labelled(f"{_LABEL}s whose names differ"):
            return again()

    def _judge(self, error: MismatchError) -> None:
        """Raise `error` unless only the names differ; raise another one if they are swapped."""
        calls = {rank: _CALL.match(text) for rank, text in error.calls.items()}
        found = {rank: (call[1], call[2]) for rank, call in calls.items() if call is not None}
        if len(found) < len(calls) or len({call for call, _ in found.values()}) > 1:
            raise error
        names = {rank: name for rank, (_, name) in found.items()}
        swapped = self._swapped(names)
        if swapped is not None:
            raise MismatchError(_swapped_error(swapped), error.calls)
        if len(set(map(_without_digits, names.values()))) > 1:
            warn_once(_LOG, "names", _warning(names))

    def _swapped(self, names: Mapping[int, str]) -> dict[int, _Pair] | None:
        """Note unequal names; return two creations whose names ranks have swapped, if any.

        Ranks have swapped if a name was used earlier by another rank. Names that differ only in
        numbers (`dense_3`, `dense_4`) may come from a rank that has made more objects; they count
        as swapped only if the rank's names are a permutation of rank 0's.
        """
        for rank, name in names.items():
            if name == names[0]:
                continue
            earlier, now = self._unequal[rank], (names[0], name)
            before = next((one for one in earlier if one[0] == name or one[1] == names[0]), None)
            earlier.append(now)
            if before is not None and self._is_sure(rank, *now):
                return {0: (before[0], now[0]), rank: (before[1], now[1])}
        return None

    def _is_sure(self, rank: int, first: str, mine: str) -> bool:
        base = _without_digits(mine)
        if base != _without_digits(first):
            return True
        pairs = (one for one in self._unequal[rank] if _without_digits(one[0]) == base)
        firsts, others = zip(*pairs, strict=True)
        return Counter(firsts) == Counter(others)


def _without_digits(name: str) -> str:
    return re.sub(r"_?\d+", "", name)


def _swapped_error(swapped: Mapping[int, _Pair]) -> str:
    rows = [f"  rank {rank}: '{one}', then '{two}'" for rank, (one, two) in swapped.items()]
    return "\n".join(
        [
            "the ranks create variables of a strategy in different orders:",
            *rows,
            "each would get the other's first value and gradients: create variables in one order"
            " on all ranks, such as that of sorted(names); sets have another in each process",
        ]
    )


def _warning(names: Mapping[int, str]) -> str:
    rank, other = next((rank, name) for rank, name in names.items() if name != names[0])
    return (
        f"rank 0 creates variable '{names[0]}' where rank {rank} creates '{other}'; they are"
        " treated as one variable: it starts with rank 0's value, and its gradients are summed"
        " over the ranks. If they are different variables, create them in the same order on all"
        " ranks; if not, give them the same name."
    )
