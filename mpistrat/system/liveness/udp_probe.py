"""Choose which processes a rank watches by UDP, and how often it asks (udp.py).

Linux refuses little: one datagram a second for each machine that asks, after the first six. So a
few ranks of each machine watch the processes on the next few machines, and who finds that one has
ended tells the others by MPI. Nothing is sent before a wait has lasted, and then at most two
datagrams a second to each of those processes.

On three hosts under MPICH's mpirun, whose launcher goes on when a rank calls ``os._exit(0)``, the
others had their `PeerLostError` 0.8 to 1.8 s after it: in collectives, and as the chief, workers
and servers of a job with parameter servers. Who sends to a dead rank before that is known, MPICH
5.0 ends with a segmentation fault, and so its launcher the job.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from mpistrat.system.liveness import udp
from mpistrat.system.liveness.probe import Probe
from mpistrat.system.liveness.udp import Place, Port

__all__ = ["UdpProbe", "deaf", "watched"]

_STALL_S = 0.2  # a wait this long is looked into
_EVERY_S, _SELDOM_S = 0.5, 2.0  # between two datagrams to a process, at first and in long waits
_ANSWER_S = 2e-3  # within which a refusal comes
_TRY_AGAIN_S = 2.0  # after a trial that may have failed; then twice that, and so on
_LAST_WORDS_S = 0.8  # how long what a process sent before its end may be on its way
_WATCHERS = 4  # of each machine
_NEXT_MACHINES, _NEXT_RANKS = 3, 8  # whom a rank watches: on other machines, and on its own


class UdpProbe(Probe):
    """The processes of other ranks that this rank watches while it waits.

    Parameters
    ----------
    places
        Where they are (:func:`udp.here`), by rank. They live: they have just said so.

    Notes
    -----
    All methods are **Local**, for any thread.
    """

    def __init__(self, places: Mapping[int, int]) -> None:
        self._places = {rank: Place.of(one) for rank, one in places.items() if one}
        self._wait: int | None = None
        self._since = self._ask_at = self._asked_at = 0.0
        self._try_at, self._pause = 0.0, _TRY_AGAIN_S
        port = udp.port()
        if port is not None:
            with port.lock:
                for place in self._places.values():
                    port.welcome(place)
                self._attempt(port, time.monotonic())

    def _attempt(self, port: Port, now: float) -> None:
        """Test the addresses of all processes, which were alive a moment ago."""
        self._try_at, self._pause = now + self._pause, 2 * self._pause
        for place in self._places.values():
            port.attempt(place)

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes have ended; in long waits, probe them.

        Parameters
        ----------
        wait
            Another number for each wait; one that has made progress is another one.
        """
        now, port = time.monotonic(), udp.port()
        is_new = wait != self._wait
        if is_new:
            self._wait, self._since, self._ask_at = wait, now, now + _STALL_S
        is_due = now > self._try_at if is_new else now > self._since + _STALL_S
        if not is_due or port is None or not port.lock.acquire(blocking=False):
            return ()
        try:
            if is_new:
                self._attempt(port, now)
                return ()
            return self._look(port, now)
        finally:
            port.lock.release()

    def _look(self, port: Port, now: float) -> Sequence[int]:
        port.look()
        if now >= self._ask_at:
            self._ask_at = now + min(max(_EVERY_S, (now - self._since) / 4), _SELDOM_S)
            self._ask(port, now)
        known = ((rank, port.refused(place)) for rank, place in self._places.items())
        refused = {rank: at for rank, at in known if at is not None}
        is_sure = any(now - at > _LAST_WORDS_S for at in refused.values())
        return list(refused) if is_sure else ()  # launchers end those beside a dead one, too

    def may_send(self, wait: int = 0) -> bool:
        """Tell whether MPI may send to them now: MPICH crashes if one has ended.

        If nothing was heard of them for long, the answer is no at first, for as long as a refusal
        takes to come back. `wait` is as of :meth:`ended`.
        """
        now, port = time.monotonic(), udp.port()
        if port is None:
            return True
        if not port.lock.acquire(blocking=False):
            return False
        try:
            if wait == self._wait and now - self._since > _STALL_S:
                self._ask_anew(port, now)
            port.look()
            has_refused = any(port.refused(one) is not None for one in self._places.values())
            return not has_refused and now - self._asked_at > _ANSWER_S
        finally:
            port.lock.release()

    def refresh(self) -> None:
        """Probe all of them, and wait as long as a refusal takes to arrive."""
        port = udp.port()
        if port is not None and port.lock.acquire(blocking=False):
            try:
                if self._ask_anew(port, time.monotonic()):
                    time.sleep(_ANSWER_S)
                port.look()
            finally:
                port.lock.release()

    def _ask_anew(self, port: Port, now: float) -> bool:
        return now - self._asked_at > _STALL_S and self._ask(port, now)

    def _ask(self, port: Port, now: float) -> bool:
        asked = [port.ask(place) for place in self._places.values()]
        if any(asked):
            self._asked_at = now
        return any(asked)


def watched(places: Sequence[int], rank: int, near: Collection[int] = ()) -> list[int]:
    """Return the ranks that a rank is to watch, such that each rank has a few watchers.

    Parameters
    ----------
    places
        Where all ranks' processes are.
    rank
        The one that watches.
    near
        Those of which it is told otherwise.
    """
    hosts = [place >> 32 for place in places]
    mates = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    here = mates.index(rank)
    found = set((mates[here:] + mates[:here])[1 : 1 + _NEXT_RANKS])
    if here < _WATCHERS:
        machines = list(dict.fromkeys(hosts))
        mine = machines.index(hosts[rank])
        following = (machines[mine:] + machines[:mine])[1 : 1 + _NEXT_MACHINES]
        found.update(other for other, host in enumerate(hosts) if host in following)
    return sorted(found - {rank, *near})


def deaf(places: Sequence[int], rank: int, ends_machines: bool) -> set[int]:
    """Return the ranks that a rank must not send to, because their processes have ended.

    Parameters
    ----------
    places
        Where all ranks' processes are.
    rank
        This one.
    ends_machines
        Whether the launcher ends all on a machine where one has ended, though fewer be known.
    """
    found = {other for other, place in enumerate(places) if udp.is_known_to_have_ended(place)}
    if found and ends_machines:
        hosts = [place >> 32 for place in places]
        dead = {hosts[other] for other in found} - {hosts[rank]}
        found.update(other for other, host in enumerate(hosts) if host in dead)
    return found
