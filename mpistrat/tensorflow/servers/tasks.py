"""The ranks of a job as tasks of a TensorFlow cluster: roles, addresses, liveness."""

from __future__ import annotations

import math
import os
from typing import Any

from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.collectives import Communicator
from mpistrat.errors import ClusterError, PeerLostError, UsageError
from mpistrat.ps.transport.open_job import open_job
from mpistrat.system.network.addresses import reachable_host

__all__ = ["Tasks"]

_LOOPBACK = "127.0.0.1"
_PROXY_EXCEPTIONS = "no_grpc_proxy"


class Tasks:
    """The tasks of one cluster, as this rank sees them.

    Parameters
    ----------
    resolver
        A `MPIClusterResolver` with parameter servers.
    comm, backend
        As of `Communicator`; `comm` is by default the resolver's.
    makes
        What this rank makes: "ParameterServerStrategy" or "Server".
    role
        The job and index that the program says this rank has; None for what the resolver says.

    Raises
    ------
    UsageError, ClusterError
        On every rank, if on any of them the resolver or the role is not right.

    Notes
    -----
    **Collective.**

    Attributes
    ----------
    communicator
        Between all ranks.
    job, index
        This rank's role: "chief", "worker", "ps" or "evaluator", and its number among those.
    host
        What other ranks call this rank's machine; on one machine the loopback address.
    """

    def __init__(
        self,
        resolver: Any,
        comm: Any,
        backend: str,
        *,
        makes: str,
        role: tuple[str | None, int | None] = (None, None),
    ) -> None:
        given = comm if comm is not None else getattr(resolver, "comm", None)
        self.communicator = open_job(given, backend)
        # Not raised yet: the other ranks wait in `_agree`, and raise it as well.
        wrong = _complaint(resolver, self.communicator, makes, role)
        counts = (0, 0) if wrong is not None else (resolver.num_ps, resolver.num_evaluators)
        self._agree(wrong, counts)
        self.host = self._found_host()
        # Roles follow from the communicator's ranks, which need not be those of the given
        # resolver.
        known = MPIClusterResolver(None, *counts, topology=self.communicator.topology)
        self._spec = known.cluster_spec()
        self.job, self.index = str(known.task_type), int(known.task_id or 0)
        os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # TensorFlow's way to see failures

    def _agree(self, wrong: Exception | None, counts: tuple[int, int]) -> None:
        """Raise the same error on all ranks, if there is one on any."""
        facts = self.communicator.allgather_object((wrong, counts))
        errors = {rank: error for rank, (error, _) in enumerate(facts) if error is not None}
        columns = zip(*(found for _, found in facts), strict=True)
        for name, by_rank in zip(("num_ps", "num_evaluators"), columns, strict=True):
            if not errors and len(set(by_rank)) > 1:
                text = f"{name} by rank is {list(by_rank)}; expected the same on all"
                errors = {0: UsageError(text)}
        if errors:
            # All ranks raise, so all of them close it.
            self.communicator.close()
            first = next(iter(errors.values()))
            texts = dict.fromkeys(str(error) for error in errors.values())
            raise type(first)("; ".join(texts))

    def _found_host(self) -> str:
        if self.communicator.topology.num_nodes == 1:
            # One machine's ranks meet there without a name service.
            return _LOOPBACK
        try:
            return reachable_host(self.communicator.allgather_object)
        except ClusterError:
            self.communicator.close()  # all ranks raise it
            raise

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.communicator.size

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return int(self._spec.num_tasks("worker"))

    @property
    def num_ps(self) -> int:
        """Number of parameter servers."""
        return int(self._spec.num_tasks("ps"))

    def name(self, rank: int) -> str:
        """Return what a rank is, in words."""
        workers, num_ps = self.num_workers, self.num_ps
        jobs = [("worker", index) for index in range(workers)]
        jobs += [("ps", index) for index in range(num_ps)]
        jobs += [("evaluator", index) for index in range(self.size - len(jobs) - 1)]
        role = "the chief" if rank == 0 else "{} {}".format(*jobs[rank - 1])
        return f"{role} (rank {rank}/{self.size})"

    @property
    def me(self) -> str:
        """What this rank is, in words."""
        return self.name(self.communicator.rank)

    def published(self, address: str) -> dict[str, list[str]]:
        """Return the addresses of all servers by job, of which this rank's is `address`, if any.

        Notes
        -----
        **Collective**. No proxy is asked for any of them from now on.
        """
        found = self.communicator.allgather_object(address)
        # Before TensorFlow connects: gRPC reads the variable when it makes a channel.
        past_proxies({one.rpartition(":")[0] for one in found if one})
        first_ps = 1 + self.num_workers
        return {"worker": found[1:first_ps], "ps": found[first_ps : first_ps + self.num_ps]}

    def wait_for_chief(self) -> None:
        """Return when the chief has closed the cluster, or its program has ended well.

        There is no deadline, since a server idles on purpose.

        Raises
        ------
        PeerLostError
            The chief, or another rank, failed or died.
        """
        try:
            # Closing is the meeting of all ranks. It ends early if one fails, or its process is
            # gone.
            self.communicator.close(timeout=math.inf)
        except PeerLostError as error:
            raise self._lost(error.rank, str(error)) from error

    def is_over(self) -> bool:
        """Tell whether the chief has closed the cluster; it need not wait for this rank then.

        Raises
        ------
        PeerLostError
            As `wait_for_chief`.
        """
        # Started once and tested again by each call. It ends when the chief closes, too.
        closing = self.communicator.iclose()
        if not closing.test():
            wrong = self._trouble()
            if wrong is None:
                return False
            if not closing.test():  # else it was over when that rank ended
                raise wrong
        self.wait_for_chief()
        return True

    def check(self) -> None:
        """Raise if a task has failed, or its process has ended. **Local.**

        Raises
        ------
        PeerLostError
            Names it.
        """
        wrong = self._trouble()
        if wrong is not None:
            raise wrong

    def _trouble(self) -> PeerLostError | None:
        """Return what is wrong with another rank, or None. **Local.**"""
        found = self.communicator.health.peers.trouble()
        if found is not None:
            return self._lost(found[0], f"it failed with {found[1]}")
        for rank in self.communicator.health.peers.lost():
            return self._lost(rank, "its process has ended")
        return None

    def _lost(self, rank: int, why: str) -> PeerLostError:
        who = self.name(rank) if rank >= 0 else "a task"
        return PeerLostError(f"{self.me} cannot go on without {who}: {why}", rank=rank)


def past_proxies(hosts: set[str]) -> None:
    """Tell gRPC to ask no proxy for some hosts. **Local.**"""
    # gRPC ignores no_proxy where no_grpc_proxy is set, so the names of the former are kept.
    before = os.environ.get(_PROXY_EXCEPTIONS) or os.environ.get("no_proxy", "")
    names = dict.fromkeys([*filter(None, before.split(",")), *sorted(hosts)])
    os.environ[_PROXY_EXCEPTIONS] = ",".join(names)


def _complaint(
    resolver: Any, communicator: Communicator, makes: str, role: tuple[str | None, int | None]
) -> Exception | None:
    """Return what is wrong on this rank, or None. **Local.**"""
    if not isinstance(resolver, MPIClusterResolver) or not resolver.num_ps:
        shown = f"num_ps={resolver.num_ps}" if hasattr(resolver, "num_ps") else repr(resolver)
        return UsageError(
            f"cluster_resolver with {shown}; expected"
            " mpistrat.cluster_resolver.MPIClusterResolver(num_ps=...) with 1 or more"
        )
    topology, counts = communicator.topology, (resolver.num_ps, resolver.num_evaluators)
    try:
        known = MPIClusterResolver(None, *counts, topology=topology)
    except ClusterError as error:
        return error
    job, index = str(known.task_type), known.task_id
    here = f"rank {topology.rank}/{topology.size} is {job} {index}"
    if (job == "chief") != (makes == "ParameterServerStrategy"):
        wanted = (
            "ParameterServerStrategy(resolver)" if job == "chief" else "Server(resolver).join()"
        )
        return UsageError(f"{here}, but makes a {makes}; expected {wanted} there")
    if role[0] not in (None, job) or role[1] not in (None, index):
        return UsageError(f"{here}, but is told to be {role[0]} {role[1]}; leave that out")
    return None
