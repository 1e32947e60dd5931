"""The roles of a job's ranks, and the TF_CONFIG that says so to programs that read it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver, publish
from mpistrat.cluster.topology import Topology
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["VARIABLE", "JobRoles", "current", "describe", "set_current", "told_counts"]

VARIABLE = "TF_CONFIG"
_LOG = get_logger(__name__)


@dataclass(frozen=True)
class JobRoles:
    """Which rank is what in a job, as `MPIClusterResolver` assigns it.

    Attributes
    ----------
    topology
        The ranks of the cluster: all but evaluators, which see it as its first rank does.
    num_ps
        As of `MPIClusterResolver`.
    comm
        Their mpi4py communicator; None in a job without a launcher.
    is_told
        Whether somebody has said `num_ps`; else a program's own number counts for more.
    evaluator
        This rank's number among the evaluators, if it is one.
    has_chief
        Whether rank 0 is called chief also without parameter servers, as a TF_CONFIG has said.
    """

    topology: Topology
    num_ps: int = 0
    comm: Any = None
    is_told: bool = False
    evaluator: int | None = None
    has_chief: bool = False

    @classmethod
    def of_job(cls, num_ps: int, num_evaluators: int, *, is_told: bool) -> JobRoles:
        """Return the roles of COMM_WORLD's ranks. **Collective**: it starts MPI.

        Raises
        ------
        UsageError, ClusterError
            On all ranks: the numbers cannot be right, or are more than the job has ranks for.
        """
        from mpistrat.cluster import mpi

        comm = mpi.world()
        everyone = Topology.of(comm)
        if not num_evaluators:
            return cls(everyone, num_ps, comm, is_told)
        MPIClusterResolver(comm, num_ps, num_evaluators, topology=everyone)  # it checks them
        # A program's evaluator knows nothing of the others, and makes no collective call.
        first = everyone.size - num_evaluators
        mine = None if everyone.rank < first else everyone.rank - first
        part = comm.Split(int(mine is not None), everyone.rank)
        rank = everyone.rank if mine is None else 0
        topology = Topology.from_hosts(rank, everyone.hostnames[:first])
        return cls(topology, num_ps, part, is_told, mine)

    def named_as_in(self, config: str | None) -> JobRoles:
        """Return these roles, with a chief if a TF_CONFIG has one and no parameter servers."""
        parsed = _parsed(config or "")
        jobs = _jobs(parsed.get("cluster")) if isinstance(parsed, dict) else {}
        return replace(self, has_chief=True) if "chief" in jobs and "ps" not in jobs else self

    def with_ps(self, wanted: int) -> JobRoles:
        """Return these roles with a program's number of parameter servers, unless one was told.

        Parameters
        ----------
        wanted
            As many as the program would have; fewer if the job has fewer ranks.
        """
        if self.is_told and self.num_ps:
            return self
        room = self.topology.size - 2  # a chief and a worker
        return replace(self, num_ps=max(1, min(wanted, room) if room > 0 else wanted))

    @property
    def has_idle_rank(self) -> bool:
        """Whether two ranks are too few: rank 0 then has all roles, and rank 1 nothing to do."""
        return self.num_ps > 0 and self.topology.size == 2

    @property
    def is_chief(self) -> bool:
        """Whether this rank is the chief, or the first worker."""
        return self.topology.rank == 0 and self.evaluator is None

    def resolver(self) -> MPIClusterResolver:
        """Return the resolver of these roles. **Local.**

        Raises
        ------
        ClusterError
            The job has too few ranks for them.
        """
        topology, comm = self.topology, self.comm
        if self.has_idle_rank:
            topology, comm = Topology.from_hosts(0, topology.hostnames[:1]), None
        kind = _WithChief if self.has_chief and not self.num_ps else MPIClusterResolver
        found = kind(comm, self.num_ps, topology=topology)
        if self.evaluator is not None:
            found.task_type, found.task_id = "evaluator", self.evaluator
        elif self.has_idle_rank and not self.is_chief:
            found.task_type, found.task_id = "worker", 0
        return found

    def tf_config(self) -> dict[str, Any]:
        """Return what TF_CONFIG is to say on this rank. **Local.**"""
        resolver = self.resolver()
        return {
            "cluster": resolver.cluster_spec().as_dict(),
            "task": {"type": resolver.task_type, "index": resolver.task_id},
        }

    def publish(self) -> str:
        """Set TF_CONFIG in the environment of this process, and return it. **Local.**"""
        publish(json.dumps(self.tf_config()))
        return os.environ[VARIABLE]

    def replace_given(self) -> bool:
        """Replace a TF_CONFIG that says something else; rank 0 notes it once. **Local.**

        Returns
        -------
        bool
            Whether there was another one. Where there is none, none is set.
        """
        given = os.environ.get(VARIABLE)
        if given is None or _parsed(given) == self.tf_config():
            return False
        told = describe(given)
        self.publish()
        text = (
            f"the program's TF_CONFIG ({told}) is replaced by what MPI says:"
            f" {describe(os.environ[VARIABLE])}"
        )
        warn_once(_LOG, "TF_CONFIG replaced", text)
        return True


class _WithChief(MPIClusterResolver):
    """Resolve rank 0 as the chief, and the others as workers."""

    def _spec_of(self, topology: Topology) -> ClusterSpec:
        chief, *workers = super()._spec_of(topology).job_tasks("worker")
        return ClusterSpec({"chief": [chief], **({"worker": workers} if workers else {})})


_current: list[JobRoles] = []


def set_current(roles: JobRoles) -> None:
    """Set the roles by which an unchanged program runs. **Local.**"""
    _current[:] = [roles]


def current() -> JobRoles:
    """Return the roles that were set. Where none were, every rank of COMM_WORLD is a worker.

    With a TF_CONFIG of the program's that has a chief, rank 0 is called so from then on.
    **Local** where they were set, else **Collective**: it starts MPI.
    """
    if not _current:
        from mpistrat.cluster import mpi

        comm = mpi.world()
        set_current(JobRoles(Topology.of(comm), comm=comm))
    set_current(_current[0].named_as_in(os.environ.get(VARIABLE)))
    return _current[0]


def describe(text: str) -> str:
    """Return in a few words what a TF_CONFIG says."""
    config = _parsed(text)
    if not isinstance(config, dict):
        return "no JSON object"
    task, cluster = config.get("task"), config.get("cluster")
    role = f"{task.get('type')} {task.get('index')}" if isinstance(task, dict) else "no task"
    jobs = ", ".join(f"{len(tasks)} {job}" for job, tasks in _jobs(cluster).items())
    return f"{role} of {jobs or 'no cluster'}"


def told_counts(text: str) -> tuple[int, int]:
    """Return the numbers of parameter servers and evaluators that a TF_CONFIG names.

    Raises
    ------
    UsageError
        It is no JSON object with a cluster.
    """
    config = _parsed(text)
    cluster = config.get("cluster", {}) if isinstance(config, dict) else None
    jobs = _jobs(cluster)
    if not isinstance(cluster, dict) or len(jobs) < len(cluster):
        raise UsageError(
            f"TF_CONFIG={text!r} holds no JSON object with a cluster of lists; set it like"
            ' {"cluster": {"worker": ["host0:2222"]}, "task": {"type": "worker", "index": 0}}, or'
            " unset it: MPI says who the ranks are"
        )
    return len(jobs.get("ps", ())), len(jobs.get("evaluator", ()))


def _jobs(cluster: Any) -> dict[str, Any]:
    """Return the jobs of a cluster whose tasks are given as TensorFlow wants them."""
    given = cluster.items() if isinstance(cluster, dict) else ()
    return {job: tasks for job, tasks in given if isinstance(tasks, (list, dict))}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None
