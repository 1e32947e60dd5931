"""The pytest plugin: test bodies on MPI ranks, and a deadline for every test.

Use it by ``pytest_plugins = ["mpistrat.testing.plugin"]`` in a conftest.py. Then

- ``@pytest.mark.mpi(ranks=2)`` runs a test's body on every rank of a job of two ranks;
  ``ranks=[1, 2, 3]`` on three jobs in turn; ``timeout_s=`` sets its deadline (default 20 s), which
  begins when the ranks have imported the file;
- a parameter named ``layout`` with an attribute ``ranks`` above 1 does the same for that case
  (:mod:`mpistrat.testing.layouts`);
- ``@pytest.mark.deadline(5)`` sets the deadline of a test that runs in pytest's own process
  (default 60 s).

Such a body passes when it passes on every rank. It may take parametrized values (they are pickled
and sent), no fixtures. Tests of one file and size share a job, and run one after the other.
Without MPI these tests fail; MPISTRAT_TESTS_WITHOUT_MPI=1 skips them instead.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

from mpistrat.testing.deadline import deadline
from mpistrat.testing.job import MpiJob, TaskResult
from mpistrat.testing.mpirun import LauncherError
from mpistrat.testing.placement import (
    SIZE_PARAMETER,
    Placement,
    arguments,
    marked_sizes,
    placement,
    without_mpi,
)

_LAST_RESORT_S = 180.0
"""Added to a test's deadline; then pytest itself ends, with every thread's stack."""


class _CurrentJob:
    """The job of the file and size that is tested now; there is one at a time."""

    def __init__(self) -> None:
        self._key: tuple[Path, int] | None = None
        self._job: MpiJob | None = None

    def get(self, place: Placement) -> MpiJob:
        """Return the job for a file and size, ending the one before."""
        key = (place.file, place.ranks)
        if self._job is None or key != self._key:
            self.close()
            self._key, self._job = key, MpiJob(place.ranks)
        return self._job

    def close(self) -> None:
        """End the job, and warn if it did not end well."""
        job, self._job = self._job, None
        complaint = job.close() if job is not None else ""
        if complaint:
            warnings.warn(f"{self._key}: {complaint}", stacklevel=1)


_JOB = pytest.StashKey[_CurrentJob]()
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line(
        "markers", "mpi(ranks=2, timeout_s=20): run the body on every rank of an MPI job"
    )
    config.addinivalue_line("markers", "deadline(seconds): fail the test after that time")
    config.stash[_JOB] = _CurrentJob()
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what an interrupted run has left."""
    config.stash[_JOB].close()
    os.close(config.stash[_STDERR])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Multiply a test by the job sizes in its marker."""
    sizes = marked_sizes(metafunc.definition)
    if sizes:
        metafunc.fixturenames.append(SIZE_PARAMETER)
        metafunc.parametrize(SIZE_PARAMETER, sizes, ids=[f"ranks{size}" for size in sizes])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that share a job next to each other; else keep the order."""
    order = {path: i for i, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (order[item.path], placement(item).ranks))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Guard a test by a last resort: against hangs in C, or in fixtures."""
    limit_s = placement(item).timeout_s + _LAST_RESORT_S
    faulthandler.dump_traceback_later(limit_s, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Give a test in this process its deadline; in a job, the job keeps it."""
    place = placement(item)
    if place.ranks:
        return (yield)
    with deadline(place.timeout_s):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Hand the body of a test to its job."""
    place = placement(pyfuncitem)
    if not place.ranks:
        return None
    owner = f"{pyfuncitem.cls.__qualname__}." if pyfuncitem.cls else ""
    try:
        result = (
            pyfuncitem.config.stash[_JOB]
            .get(place)
            .run(
                place.file,
                owner + pyfuncitem.originalname,
                arguments(pyfuncitem),
                module=pyfuncitem.module.__name__,
                timeout_s=place.timeout_s,
            )
        )
    except LauncherError as error:
        _no_job(error)
    _conclude(pyfuncitem, result)
    return True


def _no_job(error: LauncherError) -> None:
    if without_mpi():
        pytest.skip(f"MPISTRAT_TESTS_WITHOUT_MPI=1 and {error}")
    pytest.fail(f"{error}\n(MPISTRAT_TESTS_WITHOUT_MPI=1 skips such tests)", pytrace=False)


def _conclude(item: pytest.Function, result: TaskResult) -> None:
    """Turn what the ranks say into the outcome of the test."""
    if result.verdict == "failed":
        pytest.fail(result.report(), pytrace=False)
    for i, output in enumerate(result.outputs):
        if output.text:
            item.add_report_section("call", f"output of rank {i}", output.text)
    if result.verdict == "skipped":
        pytest.skip(result.reason)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the job after the last test of its file and size."""
    here, following = placement(item), placement(nextitem) if nextitem else None
    if here.ranks and (
        following is None or (here.file, here.ranks) != (following.file, following.ranks)
    ):
        item.config.stash[_JOB].close()
