"""The pytest plugin: test bodies on MPI ranks, and a deadline for every test.

Use it by ``pytest_plugins = ["mpistrat.testing.plugin"]`` in a conftest.py. Then

- ``@pytest.mark.mpi(ranks=2)`` runs a test's body on every rank of a job of two ranks;
  ``ranks=[1, 2, 3]`` on three jobs in turn; ``timeout_s=`` sets its deadline (default 20 s), which
  begins when the ranks have imported the file;
- a parameter named ``layout`` with an attribute ``ranks`` above 1 does the same for that case
  (:mod:`mpistrat.testing.layouts`);
- ``@pytest.mark.deadline(5)`` sets the deadline of a test that runs in pytest's own process
  (default 60 s);
- ``@takes_long()`` of :mod:`mpistrat.testing.sets` leaves a test out unless MPISTRAT_TESTS_LONG is
  1, or a part in which the test is: ``3/16`` is the third of 16. The end of the output tells.

Such a body passes when it passes on every rank. It may take parametrized values (they are pickled
and sent), no fixtures. Tests of one folder and size share a job, and run one after the other; with
``alone=True`` those of one file and size do, after all others of the folder. Folders below one
that has a conftest.py count as that one.
Without MPI these tests fail; MPISTRAT_TESTS_WITHOUT_MPI=1 skips them instead.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

from mpistrat.testing.deadline import deadline
from mpistrat.testing.job import TaskResult
from mpistrat.testing.launching.mpirun import LauncherError
from mpistrat.testing.long_tests import LongTests
from mpistrat.testing.placement import (
    SIZE_PARAMETER,
    arguments,
    marked_sizes,
    placement,
    without_mpi,
)
from mpistrat.testing.tasks.job_pool import Jobs

_LAST_RESORT_S = 180.0
"""Added to a test's deadline; then pytest itself ends, with every thread's stack."""


_JOBS = pytest.StashKey[Jobs]()
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; end at once if the environment asks for what there is not."""
    config.addinivalue_line(
        "markers",
        "mpi(ranks=2, timeout_s=20, alone=False): run the body on every rank of an MPI job",
    )
    config.addinivalue_line("markers", "deadline(seconds): fail the test after that time")
    config.addinivalue_line("markers", 'takes_long(unit="test"): see mpistrat.testing.sets')
    config.stash[_JOBS] = Jobs()
    # A copy: pytest replaces the descriptor while it captures a test's output.
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    config.pluginmanager.register(LongTests())


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what an interrupted run has left."""
    config.stash[_JOBS].close()
    os.close(config.stash[_STDERR])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Multiply a test by the job sizes in its marker."""
    sizes = marked_sizes(metafunc.definition)
    if sizes:
        metafunc.fixturenames.append(SIZE_PARAMETER)
        metafunc.parametrize(SIZE_PARAMETER, sizes, ids=[f"ranks{size}" for size in sizes])


# After plugins that choose or shuffle tests, so that those of a job stay together.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of a job next to each other, else keep the order."""
    paths = dict.fromkeys(path for item in items for path in (placement(item).folder, item.path))
    order = {path: i for i, path in enumerate(paths)}

    def key(item: pytest.Item) -> tuple[int, bool, int, int]:
        place = placement(item)
        return order[place.folder], place.is_alone, order[item.path], place.ranks

    items.sort(key=key)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Guard a test by a last resort: against hangs in C, or in fixtures."""
    limit_s = placement(item).timeout_s + _LAST_RESORT_S
    # It runs in a thread of C, also while the main thread holds the interpreter.
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
            pyfuncitem.config.stash[_JOBS]
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
        # The report has the ranks' tracebacks; that of this process would show the plugin.
        pytest.fail(result.report(), pytrace=False)
    for i, output in enumerate(result.outputs):
        if output.text:
            item.add_report_section("call", f"output of rank {i}", output.text)
    if result.verdict == "skipped":
        pytest.skip(result.reason)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the jobs that the next test does not use."""
    jobs = item.config.stash[_JOBS]
    if nextitem is None:
        jobs.close()
    else:
        jobs.keep_for(placement(nextitem))
