"""Choose how many ranks are parameter servers: by option, by TF_CONFIG, or by the program."""

from __future__ import annotations

import ast
import os

from mpistrat.cluster.resolvers.tf_config_of_ranks import VARIABLE, describe, told_counts
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger

__all__ = ["Counts", "check_servers", "names_servers", "needed_roles"]

_LOG = get_logger(__name__)
_SERVERS = "ParameterServerStrategy"
_OTHERS = frozenset(
    {"MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy", "TPUStrategy"}
)

Counts = tuple[int, int]
"""Numbers of parameter servers and of evaluators."""


def needed_roles(
    num_ps: int | None, num_evaluators: int, source: bytes | str | None
) -> tuple[Counts, bool]:
    """Return how many ranks are parameter servers and evaluators. **Local.**

    Parameters
    ----------
    num_ps, num_evaluators
        As the command line says; `num_ps` is None if it does not.
    source
        The program's text. One that makes a ParameterServerStrategy and no other strategy of
        several replicas has one parameter server by default.

    Returns
    -------
    (int, int), bool
        The numbers, and whether somebody has said them.

    Raises
    ------
    UsageError
        TF_CONFIG is in the environment, and cannot be understood.
    """
    if num_ps is not None:
        return (num_ps, num_evaluators), True
    if given := os.environ.get(VARIABLE, "").strip():
        found = told_counts(given)
        _LOG.warning(
            "TF_CONFIG of the environment (%s) is replaced by what MPI says, with %d ps and %d"
            " evaluators",
            *(describe(given), *found),
        )
        return found, True
    if source is not None and _SERVERS in (names := _names(source)) and not names & _OTHERS:
        _LOG.warning(
            "the program makes a %s and no other strategy: rank 0 is the chief, and one rank a"
            " parameter server; mpistrat run --ps chooses",
            _SERVERS,
        )
        return (1, num_evaluators), False
    return (0, num_evaluators), False


def check_servers(num_ps: int | None, num_evaluators: int, size: int) -> None:
    """Refuse an option ``--ps`` that the job has too few ranks for. **Local.**

    One rank has all roles, by threads, and so has the first of two, with one parameter server.

    Raises
    ------
    UsageError
        There are too few.
    """
    least = (num_ps or 0) + num_evaluators + 2
    has_all_roles = size == 1 or (size == 2 and num_ps == 1 and not num_evaluators)
    if not num_ps or size >= least or has_all_roles:
        return
    besides = f" and {num_evaluators} evaluators" if num_evaluators else ""
    raise UsageError(
        f"--ps {num_ps} needs {least} ranks or more (a chief, a worker, {num_ps} ps{besides}), the"
        f" job has {size}; start it with mpirun -n {least} or more, or ask for fewer ps"
    )


def names_servers(source: bytes | str) -> bool:
    """Tell whether a program names a strategy with parameter servers. **Local.**"""
    return _SERVERS in _names(source)


def _names(source: bytes | str) -> set[str]:
    """Return all names and attributes in a program's text; none if it does not compile."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError):  # Python says so when the program is run
        return set()
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return found | {one.name for n in nodes if isinstance(n, ast.ImportFrom) for one in n.names}
