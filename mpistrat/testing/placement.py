"""Decide where a test runs: in pytest's own process, or in a job of so many ranks."""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpistrat.errors import UsageError

__all__ = [
    "SIZE_PARAMETER",
    "Placement",
    "arguments",
    "marked_sizes",
    "placement",
    "slower",
    "without_mpi",
]

SIZE_PARAMETER = "_mpi_ranks"
"""The hidden parameter of a test that its marker multiplies over job sizes."""

DEFAULT_JOB_DEADLINE_S = 20.0
DEFAULT_DEADLINE_S = 60.0
_LAYOUT = "layout"


@dataclass(frozen=True)
class Placement:
    """Where one test case runs.

    Attributes
    ----------
    file
        The test file.
    ranks
        Size of the job; 0: no job, pytest's own process.
    timeout_s
        Deadline.
    is_alone
        Whether other files use other jobs.
    """

    file: Path
    ranks: int
    timeout_s: float
    is_alone: bool = False

    @property
    def folder(self) -> Path:
        """The folder whose cases of one size share a job, except files that are alone.

        It is the nearest with a conftest.py, so that folders below it share its jobs.
        """
        return _folder_of_jobs(self.file.parent)


@functools.cache
def _folder_of_jobs(folder: Path) -> Path:
    above = (folder, *folder.parents)
    return next((one for one in above if (one / "conftest.py").exists()), folder)


def _check_marker(
    ranks: Any = None, *, timeout_s: float | None = None, alone: bool = False
) -> tuple[Any, float | None, bool]:
    return ranks, timeout_s, alone


def _marker(node: pytest.Item | pytest.Function) -> tuple[Any, float | None, bool] | None:
    """Return what the closest mpi marker says, or None without one."""
    mark = node.get_closest_marker("mpi")
    if mark is None:
        return None
    try:
        return _check_marker(*mark.args, **mark.kwargs)
    except TypeError as error:
        raise pytest.Collector.CollectError(
            f"{node.nodeid}: @pytest.mark.mpi got {mark.args} {mark.kwargs}; expected ranks= "
            f"(a number or a list of numbers), timeout_s= and alone= ({error})"
        ) from None


def marked_sizes(node: pytest.Function) -> list[int]:
    """Return the job sizes to multiply a test by: empty unless its marker lists several."""
    ranks = (_marker(node) or (None,))[0]
    return [] if ranks is None or isinstance(ranks, int) else list(ranks)


def placement(item: pytest.Item) -> Placement:
    """Return where a test case runs, from its marker and its parameters."""
    marked = _marker(item) if isinstance(item, pytest.Function) else None
    ranks, timeout_s, is_alone = marked or (None, None, False)
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    layout_ranks = getattr(parameters.get(_LAYOUT), "ranks", None)
    if SIZE_PARAMETER in parameters:
        size = parameters[SIZE_PARAMETER]
    elif layout_ranks is not None:
        # One rank needs no launch.
        size = layout_ranks if layout_ranks > 1 else 0
    else:
        size = (ranks or 2) if marked else 0
    deadline_s = (timeout_s or _deadline(item, size)) * slower()
    return Placement(item.path, size, deadline_s, is_alone)


def _deadline(item: pytest.Item, size: int) -> float:
    mark = item.get_closest_marker("deadline")
    default = DEFAULT_JOB_DEADLINE_S if size else DEFAULT_DEADLINE_S
    return float(mark.args[0]) if mark else default


def arguments(item: pytest.Function) -> dict[str, Any]:
    """Return the arguments of a test that runs in a job.

    Raises
    ------
    pytest.fail.Exception
        If it uses fixtures: they would live in pytest's process, not on the ranks.
    """
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = list(inspect.signature(item.obj).parameters)
    fixtures = [name for name in names if name not in parameters]
    if fixtures:
        pytest.fail(
            f"a test that runs on MPI ranks uses the fixture {', '.join(fixtures)}; expected only "
            "parametrized values, which are pickled and sent to the ranks; make what it needs in "
            "the test itself",
            pytrace=False,
        )
    return {name: parameters[name] for name in names}


def slower() -> float:
    """Return by what the deadlines of all tests are multiplied, for machines that are slow.

    Raises
    ------
    UsageError
        MPISTRAT_TESTS_SLOWER is no number from 1 on.
    """
    text = os.environ.get("MPISTRAT_TESTS_SLOWER", "") or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor < float("inf"):
        raise UsageError(f"MPISTRAT_TESTS_SLOWER={text!r}: expected a number, 1 or more")
    return factor


def without_mpi() -> bool:
    """Tell whether the user asked for tests without MPI: those that need it are then skipped."""
    return os.environ.get("MPISTRAT_TESTS_WITHOUT_MPI", "") == "1"
