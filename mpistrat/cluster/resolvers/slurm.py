"""Resolve the cluster in a Slurm job, with TensorFlow's arguments: roles by numbers of tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.launcher import launch_variables
from mpistrat.cluster.resolvers.job_counts import JOBS, checked_counts, whole_number
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.slurm import hosts
from mpistrat.cluster.topology import Topology
from mpistrat.errors import ArgumentTypeError, ClusterError, UsageError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["SlurmClusterResolver"]

_GPUS_OF_NODE = "SLURM_GPUS_ON_NODE"


class SlurmClusterResolver(MPIClusterResolver):
    """Assign a task type and index to every rank of a Slurm job, started by srun or mpirun.

    MPI's communicator says which ranks there are, and on which nodes; Slurm's variables are only
    compared with it. Outside of Slurm the ranks get the same roles, without that comparison.

    Parameters
    ----------
    jobs
        Number of tasks of each job: ``{"chief": 1, "worker": 5, "ps": 2}``. Ranks are assigned in
        the order chief, worker, ps, evaluator (TensorFlow takes them by name), so the last ones
        are parameter servers. None: every rank is a worker.
    port_base
        Port in the address of the first rank of each node, which counts up from there. Addresses
        are labels: no port is opened.
    gpus_per_node
        GPUs of each node; None for what Slurm says of this one.
    gpus_per_task
        GPUs that `num_accelerators` tells; None for an equal share of the node's.
    tasks_per_node
        Ranks that each node must have: one number, or a dict by the node's name. None takes them
        as they are.
    auto_set_gpu
        TensorFlow's; no variable is set in either case: strategies deal out the GPUs of a node to
        its ranks by themselves, and take those that the launcher has bound as they are.
    rpc_layer
        Put before addresses by `master`.
    comm, topology
        As in `MPIClusterResolver`.

    Raises
    ------
    UsageError
        An argument cannot be right.
    ClusterError
        By the first answer, on all ranks: `jobs` or `tasks_per_node` are not the job's; ranks
        have fewer GPUs than they need; or launcher and MPI do not fit. It is a RuntimeError.

    Notes
    -----
    The first answer is **Collective** over `comm`, the others are **Local**.

    References
    ----------
    tf.distribute.cluster_resolver.SlurmClusterResolver.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are tf.distribute's
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str = "grpc",
        *,
        comm: Any = None,
        topology: Topology | None = None,
    ) -> None:
        self._jobs = None if jobs is None else checked_counts(jobs)
        self._port_base = whole_number("port_base", port_base)
        self._gpus = (
            whole_number("gpus_per_node", gpus_per_node, or_none=True),
            whole_number("gpus_per_task", gpus_per_task, or_none=True),
        )
        self._tasks_per_node = _checked_tasks(tasks_per_node)
        if not isinstance(auto_set_gpu, bool):
            raise ArgumentTypeError(f"auto_set_gpu={auto_set_gpu!r}: expected True or False")
        counts = self._jobs or {}
        super().__init__(comm, counts.get("ps", 0), counts.get("evaluator", 0), topology=topology)
        self.rpc_layer = rpc_layer

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Return the job and index of this rank."""
        return self.task_type, self.task_id

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> dict[str, int]:
        """Return the number of GPUs of each task."""
        return {"GPU": self._gpus_per_task(self.topology)}

    def _spec_of(self, topology: Topology) -> ClusterSpec:
        self.check(topology)
        labels = _labels(topology, self._port_base)
        if self._jobs is None:
            return ClusterSpec({"worker": labels})
        if topology.size == 1 and self.num_ps:  # threads of this process play the roles
            return ClusterSpec({"chief": labels, "worker": labels, "ps": labels * self.num_ps})
        spec, first = {}, 0
        for job in (job for job in JOBS if self._jobs.get(job)):
            spec[job] = labels[first : first + self._jobs[job]]
            first += self._jobs[job]
        return ClusterSpec(spec)

    def check(self, topology: Topology) -> None:
        """Raise `ClusterError` if the arguments do not fit these ranks. **Local.**"""
        total = sum((self._jobs or {}).values())
        plays_alone = topology.size == 1 and self.num_ps
        if self._jobs is not None and total != topology.size and not plays_alone:
            raise ClusterError(
                f"jobs={self._jobs} are {total} tasks, but the job has {topology.size} ranks;"
                f" start it with srun -n {total} or mpirun -n {total}, or name as many tasks as"
                " there are ranks"
            )
        names = topology.hostnames
        for host in dict.fromkeys(names):
            self._check_node(host, names.count(host))
        if topology.rank == 0:
            _note_idle_nodes(set(names))

    def _check_node(self, host: str, ranks: int) -> None:
        told = self._tasks_per_node
        wanted = told.get(host, 0) if isinstance(told, Mapping) else told
        if wanted is not None and wanted != ranks:
            raise ClusterError(
                f"tasks_per_node={told!r}, but node {host} has {ranks} ranks; start the job with"
                f" srun --ntasks-per-node={wanted or 1}, or leave tasks_per_node out"
            )
        on_node, per_task = self._gpus
        if on_node is not None and per_task is not None and per_task * ranks > on_node:
            raise ClusterError(
                f"gpus_per_task={per_task} for the {ranks} ranks of node {host} are more than"
                f" gpus_per_node={on_node}; start fewer ranks a node, or give each fewer GPUs"
            )

    def _gpus_per_task(self, topology: Topology) -> int:
        on_node, per_task = self._gpus
        if per_task is not None:
            return per_task
        if on_node is None:
            text = os.environ.get(_GPUS_OF_NODE, "")
            on_node = int(text) if text.isdecimal() else 0
        return on_node // topology.local_size


def _checked_tasks(tasks_per_node: Any) -> int | dict[str, int] | None:
    if not isinstance(tasks_per_node, Mapping):
        return whole_number("tasks_per_node", tasks_per_node, or_none=True)
    return {
        str(host): whole_number(f"tasks_per_node[{host!r}]", count)
        for host, count in tasks_per_node.items()
    }


def _labels(topology: Topology, port_base: int) -> list[str]:
    """Return an address for each rank: its node, and a port that no other rank there has."""
    seen: dict[str, int] = {}
    labels = []
    for host in topology.hostnames:
        seen[host] = seen.get(host, 0) + 1
        labels.append(f"{host}:{port_base + seen[host] - 1}")
    return labels


def _note_idle_nodes(used: set[str]) -> None:
    """Warn about nodes of the allocation without a rank of mpirun's; steps may leave some out."""
    found = hosts.job_list()
    if found is None or launch_variables.is_srun() or not launch_variables.was_launched():
        return
    try:
        nodes = hosts.expand(found[1])
    except UsageError as error:  # not worth the job
        warn_once(get_logger(__name__), "nodes of the job", f"{found[0]}: {error}")
        return
    idle = [node for node in nodes if node not in used]
    if idle and len(idle) < len(nodes):  # else the ranks know other names of theirs
        more = ", ..." if len(idle) > 4 else ""
        text = (
            f"nodes of this Slurm job without a rank: {len(idle)} of {len(nodes)}"
            f" ({', '.join(idle[:4])}{more}); start more ranks, or ask for fewer nodes"
        )
        warn_once(get_logger(__name__), "idle nodes", text)
