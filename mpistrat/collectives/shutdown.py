"""End a job of several ranks: together on success, else soon and with a reason.

At the end of a program every open communicator crosses its gate once more (a rank that still
waits in another call learns that this one is gone). After a failure the ranks tell each other
that they are leaving; once all have, or after a grace (``MPISTRAT_GRACE``), the job is aborted,
because MPI_Finalize could wait for a rank that will never come.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.collectives.health import stacks, timeline
from mpistrat.errors import CommunicationError
from mpistrat.system.log import get_logger
from mpistrat.system.program_end import exit_hooks, standard_output
from mpistrat.system.program_end.exit_hooks import Phase
from mpistrat.system.waiting import wait_until

if TYPE_CHECKING:
    from mpistrat.collectives.communicator import Communicator
    from mpistrat.collectives.progress.work import Work

__all__ = ["forget", "install", "leave", "watch"]

_LOG = get_logger(__name__)
_CLOSE_FIRST = "close strategies and communicators before it, or leave it to mpi4py"
_TURN_S = 0.5  # until an abort by another rank has ended this one


class _Watch:
    """The open communicators of this process, and how their end went."""

    def __init__(self) -> None:
        self.open: dict[Communicator, None] = {}  # in the order in which they were made
        self.is_installed = False
        self.ended: list[Communicator] = []  # that were open when the end began
        self.is_well = False

    def install(self) -> None:
        if not self.is_installed:
            self.is_installed = True
            exit_hooks.watch_errors(self.tell)
            exit_hooks.register(Phase.COMMUNICATORS, self.close_all)
            exit_hooks.register(Phase.TIMELINE, lambda: timeline.finish(self.is_well))
            exit_hooks.register(Phase.ABORT, self.abort_unless_well)
            os.register_at_fork(after_in_child=self.forget_all)
            mpi.before_finalize(self.stop_all)

    def tell(self, error: BaseException) -> None:
        """Tell the peers about an exception that ends this program."""
        for communicator in self.open:
            communicator.fail(error, is_end=True)

    def stop_all(self) -> None:
        """Let no open communicator use MPI any more, which would end this process."""
        stacks.stop()
        for communicator in self.open:
            communicator.forget(f"the program called MPI.Finalize(): {_CLOSE_FIRST}")

    def forget_all(self) -> None:
        """Have nothing to do with the job: this is a forked child, and no rank of it."""
        for communicator in self.open:
            communicator.forget("this process is a forked child, which is no rank of the job")
        self.open.clear()

    def close_all(self) -> None:
        """Cross all gates for the last time, if none of them and nothing else has failed."""
        self.ended = list(self.open)
        if mpi.is_over():
            self.end_without_mpi()
            return
        if exit_hooks.ending.error is not None:
            return
        _tell_why(self.ended)
        if all(communicator.health.broken is None for communicator in self.ended):
            self.is_well = _close_all([one for one in self.ended if not one.is_closed])

    def end_without_mpi(self) -> None:
        """Say that communicators are open that nobody can close."""
        self.is_well = True  # so that MPI is not asked for anything
        if self.ended:
            _LOG.warning(
                "the program called MPI.Finalize() while %d communicators were open; %s",
                len(self.ended),
                _CLOSE_FIRST,
            )

    def abort_unless_well(self) -> None:
        """End the job here if it cannot end by MPI_Finalize."""
        # In both cases: the thread of stacks.py must be in no MPI call when MPI is finalized.
        stacks.stop()
        if not self.is_well:
            leave(self.ended)


_watch = _Watch()


def install() -> None:
    """Look after the end of this program, which is a rank of a job. **Local**, idempotent."""
    _watch.install()


def watch(communicator: Communicator) -> None:
    """Take `communicator` into the end of the program. **Local.**"""
    _watch.open[communicator] = None


def forget(communicator: Communicator) -> None:
    """Drop a communicator that was closed. **Local.**"""
    _watch.open.pop(communicator, None)


def _tell_why(communicators: list[Communicator]) -> None:
    """Say why a program that ended well takes its job down all the same."""
    for one in communicators:
        reason, _, _ = (one.health.broken or "").partition("\n")  # the rest was told before
        if reason:
            sys.stderr.write(
                f"[mpistrat] a communicator of rank {one.gate.names.of(one.rank)} broke earlier"
                f" ({reason}); the job ends by abort, since MPI_Finalize could hang\n"
            )


def _close_all(communicators: list[Communicator]) -> bool:
    """Cross all gates for the last time; return whether all went well."""
    try:
        # All are started before the first wait: a peer that made them in another order waits in
        # another one first.
        works = [(communicator, communicator.iclose()) for communicator in communicators]
        for communicator, work in works:
            _wait_for_all(communicator, work, [one for _, one in works])
    except CommunicationError as error:
        # Not by the log, which may be silent here: this may be all that the rank ever says.
        sys.stderr.write(f"[mpistrat] at the end of the program: {error}\n")
        return False
    return True


def _wait_for_all(
    communicator: Communicator, work: Work[None], works: Sequence[Work[None]]
) -> None:
    """Wait as MPI_Finalize would: another rank may have long work to do alone.

    The other `works` go on meanwhile: a rank may be in a call of their communicators. If one of
    them fails, its error is raised here: its peer may be waiting for this rank.

    After ``MPISTRAT_TIMEOUT`` it says so, and ends only if a peer fails or the job does.
    """
    limit = config.valid_or(config.timeout_s, config.DEFAULT_TIMEOUT_S)
    wait_until(
        lambda: _is_over(work, works),
        math.inf,
        1e-3,
        look=lambda _: work.check_peers(),
        complain=partial(
            _LOG.warning, "rank %d waits %.0f s for the others to end", communicator.rank, limit
        ),
        complain_after_s=limit,
    )
    # `test` returns true for a failed call, too; this raises its error.
    next(filter(_has_failed, works), work).wait()


def _is_over(work: Work[None], works: Sequence[Work[None]]) -> bool:
    """Advance all works; tell whether `work` is over, or one has failed, which ends the job."""
    for one in works:
        one.test()
    return work.done or any(map(_has_failed, works))


def _has_failed(work: Work[None]) -> bool:
    return work.done and work.error is not None


def leave(communicators: list[Communicator]) -> None:
    """Say goodbye, wait until all ranks have or the grace is over, and abort the job.

    An abort loses what the launcher has not read: MPICH's mpiexec ends as soon as it hears of one.
    So each rank says goodbye only when the launcher has read all that it printed.
    """
    grace_s = config.valid_or(config.grace_s, config.DEFAULT_GRACE_S)
    end = time.monotonic() + grace_s
    # Before the pipes are looked at: this output has to be read by then, too.
    _tell_last_calls(communicators)
    standard_output.wait_until_read(grace_s)
    for communicator in communicators:
        with contextlib.suppress(Exception):  # nothing must keep this rank from the abort
            peers = communicator.health.peers
            peers.say_leaving(communicator.call_log.completed, exit_hooks.ending.status)
    wait_until(lambda: _have_all_left(communicators), end - time.monotonic(), 0.01)
    if not _is_first(communicators):
        time.sleep(_TURN_S)  # one abort is enough, and ends this rank here
    mpi.abort(_status(communicators))


def _status(communicators: Sequence[Communicator]) -> int:
    """Return the job's exit status: what this rank or another chose by ``sys.exit``, else 1."""
    chosen = [sorted(one.health.peers.exit_statuses.items()) for one in communicators]
    others = [status for exits in chosen for _, status in exits]
    ending = exit_hooks.ending
    return ending.status or next(iter(others), ending.status_of_job) or 1


def _tell_last_calls(communicators: list[Communicator]) -> None:
    """Show the last calls of the communicators that failed; if none did, of the last one used."""
    with contextlib.suppress(Exception):  # nothing must keep this rank from the end
        failed = [c for c in communicators if c.health.broken or c.call_log.recorder.has_failed]
        for communicator in communicators:
            communicator.call_log.recorder.drain(is_end=True)
        for communicator in failed or sorted(communicators, key=_last_used_ns)[-1:]:
            communicator.call_log.show_last_calls()


def _last_used_ns(communicator: Communicator) -> int:
    last = communicator.call_log.recorder.last()
    return 0 if last is None else last.start_ns


def _is_first(communicators: list[Communicator]) -> bool:
    """Tell whether no lower rank leaves in the same way, which will abort the job."""
    return not any(rank < c.rank for c in communicators for rank in c.health.peers.leaving)


def _have_all_left(communicators: list[Communicator]) -> bool:
    """Tell whether all peers said goodbye, or are gone; without a communicator nobody can."""
    for communicator in communicators:
        communicator.health.peers.listen()
    missing = [c for c in communicators if len(_gone(c)) < c.size - 1]
    return bool(communicators) and not missing


def _gone(communicator: Communicator) -> set[int]:
    peers = communicator.health.peers
    return {*peers.leaving, *peers.ended, *peers.lost()}
