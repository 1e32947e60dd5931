"""`ClusterSpec`: the tasks of a job by type and number, with their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["ClusterSpec"]


class ClusterSpec:
    """The tasks of a cluster by job, as in ``tf.train.ClusterSpec``.

    Parameters
    ----------
    cluster
        For each job the addresses of its tasks: a list, or a dict from task index to address. Or
        another cluster spec, TensorFlow's too.

    Raises
    ------
    ArgumentTypeError
        Something else was given. It is a TypeError.
    """

    def __init__(self, cluster: Any) -> None:
        jobs = cluster.as_dict() if hasattr(cluster, "as_dict") else cluster
        if not isinstance(jobs, Mapping):
            raise ArgumentTypeError(
                f"ClusterSpec: got a {type(cluster).__name__}; expected a dict from job names to"
                ' lists of addresses, such as {"worker": ["host0:2222", "host1:2222"]}'
            )
        self._jobs = {str(job): _tasks(str(job), tasks) for job, tasks in jobs.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return addresses by job: lists, or dicts by task index where indices are left out."""
        return {
            job: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    @property
    def jobs(self) -> list[str]:
        """Return the names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the indices of the tasks of a job."""
        return list(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of one task."""
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise UsageError(
                f"no task {task_index!r} in job {job_name!r}; it has tasks {list(tasks)}"
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job by task index, None for indices without a task."""
        tasks = self._job(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def _job(self, name: str) -> dict[int, str]:
        if name not in self._jobs:
            raise UsageError(f"no job {name!r} in the cluster; its jobs are {self.jobs}")
        return self._jobs[name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterSpec):
            return NotImplemented
        return self._jobs == other._jobs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))})"


def _tasks(job: str, tasks: object) -> dict[int, str]:
    """Return addresses by index, in order of the indices."""
    if isinstance(tasks, Mapping):
        pairs: Iterable[tuple[Any, Any]] = tasks.items()
    elif isinstance(tasks, (list, tuple)):
        pairs = enumerate(tasks)
    else:
        raise ArgumentTypeError(
            f"ClusterSpec: the tasks of job {job!r} are a {type(tasks).__name__}; expected a list"
            " of addresses or a dict from task index to address"
        )
    return dict(sorted(_task(job, index, address) for index, address in pairs))


def _task(job: str, index: object, address: object) -> tuple[int, str]:
    if not isinstance(address, str):
        raise ArgumentTypeError(
            f"ClusterSpec: address {address!r} of job {job!r} is a {type(address).__name__};"
            ' expected text such as "host:2222"'
        )
    try:
        return int(str(index)), address
    except ValueError:
        raise UsageError(
            f"ClusterSpec: task index {index!r} of job {job!r}: expected a whole number"
        ) from None
