"""Resolve the cluster from MPI: no addresses, no ports, no TF_CONFIG."""

from __future__ import annotations

import os
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver, count_devices
from mpistrat.cluster.resolvers.job_counts import JOBS, whole_number
from mpistrat.cluster.resolvers.tf_config import TFConfigClusterResolver
from mpistrat.cluster.topology import Topology
from mpistrat.errors import ArgumentTypeError, ClusterError, UsageError
from mpistrat.system.log import get_logger

__all__ = ["MPIClusterResolver", "publish", "resolver_of"]

_LOG = get_logger(__name__)
_published: list[str] = []


def resolver_of(topology: Topology, given: ClusterResolver | None) -> ClusterResolver:
    """Return a strategy's resolver: the given one, or by default one of the strategy's ranks.

    In a process that no launcher started, TF_CONFIG is the default if it is set.

    Raises
    ------
    ArgumentTypeError
        What was given is no resolver.
    ClusterError
        On all ranks: the one that was given asks for other ranks.
    """
    config = os.environ.get("TF_CONFIG")
    if given is not None:
        if not hasattr(given, "cluster_spec"):
            raise ArgumentTypeError(
                f"cluster_resolver is a {type(given).__name__}; expected a ClusterResolver,"
                " or None for one of the job's ranks"
            )
        if isinstance(given, MPIClusterResolver):
            given.check(topology)
        return given
    if topology.size == 1 and config is not None:
        return TFConfigClusterResolver()
    if config not in (None, *_published):
        _LOG.warning("TF_CONFIG is set but not used: MPI says who the workers are")
    return MPIClusterResolver(topology=topology)


def publish(config: str) -> None:
    """Set TF_CONFIG to what MPI says, which is no other cluster than that of the ranks."""
    os.environ["TF_CONFIG"] = config
    _published[:] = [config]


class MPIClusterResolver(ClusterResolver):
    """Assign a task type and index to every MPI rank.

    With ``num_ps=0`` each rank is a worker, of its rank as task id. Else rank 0 is the chief, the
    last `num_ps` ranks are ps, and those between are the workers. A job of one rank is chief,
    and threads play the other roles. After the ps come the evaluators, if there are any: they
    take no part in training, and a job of one rank has none.

    Parameters
    ----------
    comm
        An mpi4py communicator; None for COMM_WORLD, or one process if there is no launcher.
    num_ps
        Parameter servers.
    num_evaluators
        Ranks that evaluate checkpoints beside the training; needs `num_ps`.
    topology
        The topology of `comm`, if it is known already.

    Notes
    -----
    The first answer is **Collective** over `comm`: it exchanges the names of the machines (and
    starts MPI if need be). The others are **Local**. The addresses are labels, host and rank: no
    port is opened, and nothing can connect to them.

    Raises
    ------
    ClusterError
        By the first answer: the job has too few ranks for `num_ps` and `num_evaluators`.
    """

    def __init__(
        self,
        comm: Any = None,
        num_ps: int = 0,
        num_evaluators: int = 0,
        *,
        topology: Topology | None = None,
    ) -> None:
        super().__init__()
        whole_number("num_ps", num_ps)
        whole_number("num_evaluators", num_evaluators)
        if num_evaluators and not num_ps:
            raise UsageError(
                f"num_evaluators={num_evaluators} without num_ps; expected parameter servers, too:"
                " where all ranks are workers, evaluate on rank 0"
            )
        self._comm = comm
        self._num_ps, self._num_evaluators = num_ps, num_evaluators
        self._known: tuple[Topology, ClusterSpec] | None = None
        if topology is not None:
            self._known = topology, self._spec_of(topology)

    @property
    def num_ps(self) -> int:
        """Return the number of parameter servers."""
        return self._num_ps

    @property
    def num_evaluators(self) -> int:
        """Return the number of evaluators."""
        return self._num_evaluators

    @property
    def comm(self) -> Any:
        """Return the communicator of the ranks, as it was given."""
        return self._comm

    @property
    def topology(self) -> Topology:
        """Return the topology: the ranks of each machine."""
        return self._resolve()[0]

    def check(self, topology: Topology) -> None:
        """Raise `ClusterError` if the ranks of a strategy are not those asked for. **Local.**

        The ranks of any job fit this resolver; those that take numbers of tasks look at them.
        """

    def _resolve(self) -> tuple[Topology, ClusterSpec]:
        if self._known is None:
            topology = Topology.of(self._comm)
            self._known = topology, self._spec_of(topology)
        return self._known

    def _spec_of(self, topology: Topology) -> ClusterSpec:
        """Return the tasks of all ranks, in the order of `JOBS`, or raise `ClusterError`."""
        return _spec(topology.hostnames, self._num_ps, self._num_evaluators)

    def cluster_spec(self) -> ClusterSpec:
        """Return the tasks of all ranks, with labels of host and rank for addresses."""
        return self._resolve()[1]

    def _get_task_type(self) -> str | None:
        return self._task_type or self._role()[0]

    def _get_task_id(self) -> int | None:
        return self._role()[1] if self._task_id is None else self._task_id

    def _role(self) -> tuple[str, int]:
        """Return this rank's job, and its index among the ranks of that job."""
        topology, spec = self._resolve()
        index = topology.rank
        for job in (job for job in JOBS if job in spec.jobs):
            if index < spec.num_tasks(job):
                return job, index
            index -= spec.num_tasks(job)
        raise ClusterError(
            f"rank {topology.rank}/{topology.size} is none of the tasks {spec.as_dict()}; expected"
            " a task for each rank"
        )

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the label of a task, by default of this rank."""
        spec = self.cluster_spec()
        job, index = self._or_own(task_type, task_id)
        return self._url(spec.task_address(str(job), int(index or 0)), rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Return the number of devices of this rank by kind, assumed equal on all ranks."""
        return count_devices(self.topology.devices)


def _spec(hostnames: tuple[str, ...], num_ps: int, num_evaluators: int) -> ClusterSpec:
    labels = [f"{host}:{rank}" for rank, host in enumerate(hostnames)]
    size = len(labels)
    if not num_ps:
        return ClusterSpec({"worker": labels})
    if size == 1:  # threads of this process play the roles
        return ClusterSpec({"chief": labels, "worker": labels, "ps": labels * num_ps})
    least = num_ps + num_evaluators + 2
    if size < least:
        besides = f", {num_evaluators} evaluators" if num_evaluators else ""
        raise ClusterError(
            f"num_ps={num_ps} needs {least} ranks or more (a chief, a worker and {num_ps}"
            f" ps{besides}), but the job has {size}; start it with mpirun -n {least} or more, or"
            f" ask for fewer ps"
        )
    first_evaluator = size - num_evaluators
    first_ps = first_evaluator - num_ps
    jobs = {"chief": labels[:1], "worker": labels[1:first_ps]}
    jobs["ps"] = labels[first_ps:first_evaluator]
    return ClusterSpec({**jobs, "evaluator": labels[first_evaluator:]} if num_evaluators else jobs)
