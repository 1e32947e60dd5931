"""Check that the threads of all ranks of a node are not more than its cores."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Verdict, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.system.cpus import cores

__all__ = ["CHECK", "Threads", "judge"]

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Threads:
    """The threads of one rank.

    Attributes
    ----------
    count
        Threads that BLAS or OpenMP start for a call.
    reason
        The variable or the library that says so.
    cpus
        The CPUs that the rank may run on.
    quota
        The CPUs that its control group may use together with others, or None.
    """

    count: int
    reason: str
    cpus: frozenset[int]
    quota: float | None = None


def _measure(here: Here) -> Threads:
    mask = cores.usable()
    # A library may keep to the CPUs that it finds; others do as the variable says.
    stated = [found for found in (_of_libraries(), _of_variables(here)) if found]
    count, reason = max(stated, default=(len(mask), "one for each CPU"))
    return Threads(count, reason, mask, cores.quota())


def _of_libraries() -> tuple[int, str] | None:
    """Return the threads of the libraries that are loaded, if they can be asked."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return None
    import numpy  # noqa: F401, ICN001 - it loads BLAS
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    pools = [(int(pool["num_threads"]), str(pool["internal_api"])) for pool in threadpool_info()]
    return max(pools, default=None)


def _of_variables(here: Here) -> tuple[int, str] | None:
    found = [(here.number(name), name) for name in _VARIABLES]
    return next(((number, name) for number, name in found if number), None)


def judge(facts: Mapping[int, Threads], job: Job) -> Verdict:
    """Compare the sum of the threads of each node with the CPUs that its ranks may use."""
    problems = []
    for host, ranks in job.nodes.items():
        here = [facts[rank] for rank in ranks if rank in facts]
        cpus = len(frozenset().union(*(threads.cpus for threads in here)))
        limits = [cpus, *(threads.quota for threads in here if threads.quota is not None)]
        total, limit = sum(threads.count for threads in here), min(limits)
        if total > max(limit, len(here)):
            right = max(1, int(limit / len(here)))
            problems.append(
                warning(
                    f"{len(here)} rank{'s' * (len(here) > 1)} of {host} start {total} threads"
                    f" ({here[0].count} each: {here[0].reason}) on {limit:g} CPUs",
                    f"{right} thread{'s' * (right > 1)} a rank",
                    "threads without a core take turns: set their number for BLAS and OpenMP",
                    f"export OMP_NUM_THREADS={right}",
                )
            )
    first = facts[min(facts)]
    plural = "s" * (first.count > 1)
    return Verdict(
        f"{first.count} thread{plural} a rank ({first.reason})", problems=tuple(problems)
    )


CHECK = Check(
    name="cpus.thread_count",
    title="threads",
    source="OpenMP, OMP_NUM_THREADS; joblib/threadpoolctl",
    measure=_measure,
    judge=judge,
)
