"""Leave out tests that take long, and say so where pytest ends."""

from __future__ import annotations

from typing import Any

import pytest

from mpistrat.errors import UsageError
from mpistrat.testing.sets import is_left_out, part_of_long

__all__ = ["LongTests"]

_SENT = "mpistrat_long_tests"


class LongTests:
    """A part of the plugin: deselects long tests, and counts them.

    They are not skipped, since to set up and report thousands of tests takes seconds.
    """

    def __init__(self) -> None:
        _told_by_pytest(part_of_long)  # at once, if the environment asks for what there is not
        self._num = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what is not to run."""
        left = [item for item in items if _told_by_pytest(is_left_out, item)]
        self._num = len(left)
        if left:
            config.hook.pytest_deselected(items=left)
            gone = set(left)
            items[:] = [item for item in items if item not in gone]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Count a run well from which only such tests were left out; they were skipped once."""
        sent = getattr(session.config, "workeroutput", None)
        if sent is not None:
            sent[_SENT] = self._num
        elif self._num and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the number from a worker of pytest-xdist; each collects all tests."""
        self._num = max(self._num, getattr(node, "workeroutput", {}).get(_SENT, 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many were left out, and how to run them."""
        if self._num:
            part, parts = part_of_long()
            some = f", part {part} of {parts} ran" if parts else ""
            terminalreporter.write_line(
                f"left out: {self._num} tests that take long{some}; MPISTRAT_TESTS_LONG=1 runs all"
            )


def _told_by_pytest(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
