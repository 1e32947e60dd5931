"""Plugins and fixtures that tests of several folders use."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import mpistrat
from mpistrat.testing.launching.leftovers import remove_segments

pytest_plugins = ["mpistrat.testing.plugin", "pytester"]

LONGEST = "test_kernels.py"


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist hand out the files in their order, not those of few tests last.

    No example has a time limit of its own. The tests are about built-in tunings, whatever this
    user has tuned. Programs that tests start may import test files, and so the helpers. They start
    by the hundred: each would compile the package where bytecode is not kept, as in containers.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    config.option.loadscopereorder = False
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")
    no_tunings = Path(__file__).parent / "helpers" / "empty_tuning_table.json"
    os.environ["MPISTRAT_TUNING"] = str(no_tunings)
    here, paths = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, *paths]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the compiler: a worker that got it last would end alone."""
    items.sort(key=lambda item: item.path.name != LONGEST)


def pytest_collection_finish() -> None:
    """Spare each garbage collection of the tests the thousands of tests themselves: 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give back the memory that MPICH left where tests killed ranks, here or in an earlier run."""
    if not hasattr(session.config, "workerinput"):
        remove_segments()


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a folder for a pytest run of its own, with the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(mpistrat.__file__).parents[1]))
    pytester.makeconftest("pytest_plugins = ['mpistrat.testing.plugin']")
    return pytester


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT raise, also where pytest was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
