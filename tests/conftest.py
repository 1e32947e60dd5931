"""Plugins and fixtures that tests of several folders use."""

from pathlib import Path

import pytest

import mpistrat

pytest_plugins = ["mpistrat.testing.plugin", "pytester"]


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a folder for a pytest run of its own, with the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(mpistrat.__file__).parents[1]))
    pytester.makeconftest("pytest_plugins = ['mpistrat.testing.plugin']")
    return pytester
