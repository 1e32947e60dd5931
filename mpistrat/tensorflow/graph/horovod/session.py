"""Start and end Horovod in this process, and find the process set of a communicator.

Horovod is initialised once in a process, over one communicator. The first strategy that uses it
initialises it, over its own ranks. A later one of the same ranks shares that; one of some of these
ranks gets a process set, for which all of them have to make strategies at the same time, as after
``comm.Split``. When the last of these strategies is closed Horovod is shut down, so that the next
one may have other ranks.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any, NamedTuple

from mpistrat.cluster import mpi
from mpistrat.collectives import Communicator
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.processes.process_token import process_token
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase
from mpistrat.tensorflow.graph.horovod import horovod_timeline, installed
from mpistrat.tensorflow.graph.horovod.tuning import Tuning, environment

__all__ = ["Member", "is_running", "join"]


class _State(NamedTuple):
    """What a rank tells the others of itself, and of its Horovod.

    Attributes
    ----------
    process
        This process, as no other one in the job.
    number
        Of the last use of Horovod here.
    rank
        Its rank in Horovod; None if that does not run.
    first
        The process that was rank 0 when Horovod was begun; None if the program did that.
    """

    process: str
    number: int
    rank: int | None = None
    first: str | None = None


class _Session:
    """Horovod as it runs in this process, and the strategies that use it."""

    def __init__(self, communicator: Communicator, horovod: Any, first: str | None = None) -> None:
        self.owner, self.horovod, self.first = communicator, horovod, first
        self.num_users = 0
        self._sets: dict[tuple[int, ...], Any] = {}
        self._is_of_program = horovod.is_initialized()

    def begin(self, tuning: Tuning) -> None:
        """Initialise Horovod over the owner's ranks. **Collective**."""
        with environment(tuning.variables() | horovod_timeline.variables()):
            self.horovod.init(comm=_mpi_comm(self.owner), process_sets="dynamic")
        # It would shut Horovod down at the end of a program whose ranks may be stuck in it.
        atexit.unregister(self.horovod.shutdown)
        horovod_timeline.start(self.horovod)

    def process_set(self, ranks: tuple[int, ...]) -> Any:
        """Return the process set of these ranks of Horovod. **Collective** over the session.

        Raises
        ------
        BackendUnavailableError
            The program itself has initialised Horovod, for other ranks; or the strategy of all
            ranks was closed.
        """
        if len(ranks) == self.horovod.size():
            return self.horovod.global_process_set
        if self._is_of_program:
            raise BackendUnavailableError(
                f"the program has called hvd.init() for {self.horovod.size()} ranks, and this"
                f" strategy is of {len(ranks)}; leave that call out"
            )
        if self.owner.is_closed and ranks not in self._sets:
            raise BackendUnavailableError(
                f"the strategy of all {self.horovod.size()} ranks that Horovod runs over was"
                f" closed, and a process set of ranks {list(ranks)} takes all of them; keep that"
                " strategy open meanwhile"
            )
        if ranks not in self._sets:  # then on no rank: all have made the same ones
            with self.owner.labelled("making process sets of Horovod"):
                wanted = self.owner.allgather_object(ranks)
            for group in sorted(set(wanted) - set(self._sets)):
                self._sets[group] = self.horovod.add_process_set(list(group))
        return self._sets[ranks]

    def end(self) -> None:
        """Shut Horovod down, which all its ranks do, unless the program has started it."""
        if self._is_of_program:
            return
        horovod_timeline.stop(self.horovod)
        self.horovod.shutdown()


class Member:
    """The use that one communicator makes of Horovod.

    Attributes
    ----------
    horovod
        The module ``horovod.tensorflow``.
    process_set
        The ranks of the communicator.
    ranks
        Their ranks in Horovod, by rank in the communicator.
    number
        Of this use; equal on all ranks, and no other's among those ranks.
    """

    def __init__(
        self, session: _Session, process_set: Any, ranks: Sequence[int], number: int
    ) -> None:
        self._session: _Session | None = session
        self.horovod, self.process_set = session.horovod, process_set
        self.ranks, self.number = ranks, number
        session.num_users += 1

    def close(self, is_well: bool = True) -> None:
        """Use it no longer; the last one shuts Horovod down. Idempotent. **Collective.**

        After an error, which this rank may have alone, Horovod goes on until it is begun again.
        """
        session, self._session = self._session, None
        if session is None:
            return
        session.num_users -= 1
        if is_well:
            _end_unused()


_current: list[_Session] = []
_numbers = [0]


def join(communicator: Communicator, tuning: Tuning) -> Member:
    """Let the ranks of a communicator use Horovod together. **Collective.**

    Raises
    ------
    BackendUnavailableError
        On all ranks: it is not installed on some, or runs over other ranks already.
    """
    with communicator.checking():
        horovod = installed.load()
    _end_unused()  # which strategies that ended with an error have left
    states: list[_State] = communicator.allgather_object(_state(horovod))
    number = _numbers[0] = max(state.number for state in states) + 1
    if all(state.rank is None for state in states):
        _current[:] = [_Session(communicator, horovod, states[0].process)]
        _current[0].begin(tuning)
        _end_with_program()
        ranks = tuple(range(communicator.size))
        return Member(_current[0], horovod.global_process_set, ranks, number)
    ranks = tuple(state.rank for state in states if state.rank is not None)
    is_one = len({state.first for state in states}) == 1
    if not is_one or len(ranks) < len(states) or sorted(set(ranks)) != list(ranks):
        raise BackendUnavailableError(
            "Horovod runs already, over other ranks or in another order: by rank it has"
            f" {[state.rank for state in states]} (None: not running); close() the strategy that"
            " uses it first"
        )
    if not _current:
        _current[:] = [_Session(communicator, horovod)]
    if len(ranks) == horovod.size() and _current[0].owner.is_closed:
        _current[0].owner = communicator
    return Member(_current[0], _current[0].process_set(ranks), ranks, number)


def _end_unused() -> None:
    """Shut Horovod down where no strategy uses it."""
    if _current and _current[0].num_users == 0:
        _current.pop().end()


def is_running() -> bool:
    """Tell whether a strategy of this process uses Horovod. **Local.**"""
    return bool(_current)


_has_hook: list[bool] = []


def _end_with_program() -> None:
    if not _has_hook:
        _has_hook.append(True)
        exit_hooks.register(Phase.COMMUNICATORS, _end_at_exit)


def _state(horovod: Any) -> _State:
    mine = _State(process_token(), _numbers[0])
    if not horovod.is_initialized():
        return mine
    first = _current[0].first if _current else None
    return mine._replace(rank=horovod.rank(), first=first)


def _mpi_comm(communicator: Communicator) -> Any:
    return mpi.world() if communicator.origin is None else communicator.origin


def _end_at_exit() -> None:
    """End a session that no strategy has closed, if the job ends well."""
    for session in _current:
        if session.owner.is_closed and session.owner.health.broken is None:
            session.end()
    _current.clear()
