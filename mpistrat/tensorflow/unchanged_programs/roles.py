"""The roles of this job's ranks in place of what a program says of addresses and tasks."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.resolvers.tf_config_of_ranks import JobRoles, current
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["has_servers", "refuse_without_servers", "roles_for_servers", "workers_resolver"]

_LOG = get_logger(__name__)


def workers_resolver(given: Any) -> MPIClusterResolver:
    """Return what a strategy whose ranks are all workers has for its resolver. **Local.**

    Parameters
    ----------
    given
        The program's own, or None. One of another kind cannot know which ranks there are.
    """
    current().replace_given()
    if isinstance(given, MPIClusterResolver):
        return given
    roles = current()
    found = MPIClusterResolver(roles.comm, topology=roles.topology)
    if roles.has_chief:
        found = roles.resolver()
    if given is not None:
        _note_replaced(given, found)
    return found


def roles_for_servers(given: Any) -> JobRoles:
    """Return the roles for a cluster with parameter servers. **Local.**

    Parameters
    ----------
    given
        The program's resolver or cluster spec; it says how many the program would have.
    """
    current().replace_given()
    spec = given.cluster_spec() if hasattr(given, "cluster_spec") else given
    found = current().with_ps(spec.num_tasks("ps") if has_servers(spec) else 1)
    if given is not None and not isinstance(given, MPIClusterResolver):
        _note_replaced(given, found.resolver())
    if found.has_idle_rank:
        text = (
            "2 ranks are too few for a chief, a worker and a parameter server: rank 0 has all of"
            " these roles in its process, and rank 1 waits for its end"
        )
        warn_once(_LOG, "idle rank", text)
    return found


def has_servers(spec: Any) -> bool:
    """Tell whether a cluster spec has parameter servers."""
    return "ps" in getattr(spec, "jobs", ())


def refuse_without_servers() -> None:
    """Raise if the ranks' roles have no parameter servers.

    Raises
    ------
    UsageError
        They have none.
    """
    if not current().num_ps:
        raise UsageError(
            "the program makes a Server, but every rank is a worker; say how many of the ranks"
            " are to be parameter servers: mpistrat run --ps 1 ..."
        )


def _note_replaced(given: Any, found: MPIClusterResolver) -> None:
    kind, jobs = type(given).__name__, found.cluster_spec()
    counts = ", ".join(f"{jobs.num_tasks(job)} {job}" for job in jobs.jobs)
    text = f"the program's {kind} is replaced by what MPI says: {counts}"
    warn_once(_LOG, f"{kind} replaced", text)
