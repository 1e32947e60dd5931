"""Tell which tests are to run: the short ones always, long ones and repeats if asked for.

Long tests are many: a run can have one part of them, and the next run another.
"""

from __future__ import annotations

import os
import re
from zlib import crc32

import pytest

from mpistrat.errors import UsageError

__all__ = ["is_left_out", "part_of_long", "repeats", "takes_long", "with_all"]

_PART = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})")


def takes_long(*, unit: str = "test") -> pytest.MarkDecorator:
    """Mark a test, a case or a module that alone shows a promise, but takes long.

    A case counts as marked, too, if the attribute ``takes_long`` of a parameter is true.

    Parameters
    ----------
    unit
        What is never divided between parts, as it shares a job or a fixture: all cases of a
        ``"test"``, all tests of a ``"file"``, or cases with one value of the parameter named here.
    """
    return pytest.mark.takes_long(unit=unit)


def repeats() -> pytest.MarkDecorator:
    """Mark a test, a case or a module that shows in another way what others show as well."""
    return pytest.mark.skipif(not with_all(), reason="repeats; MPISTRAT_TESTS_ALL=1 runs it")


def with_all() -> bool:
    """Tell whether tests are to run that repeat others: on more ranks, layouts, dtypes or data."""
    return os.environ.get("MPISTRAT_TESTS_ALL", "") == "1"


def is_left_out(item: pytest.Item) -> bool:
    """Tell whether a test takes long and is not to run.

    Raises
    ------
    UsageError
        A mark names no unit of the test, or as `part_of_long`.
    """
    part, parts = part_of_long()
    if not _takes_long(item):
        return False
    unit = crc32(_unit(item).encode())
    return not parts or unit % parts != part - 1


def _takes_long(item: pytest.Item) -> bool:
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    is_marked = item.get_closest_marker("takes_long") is not None
    return is_marked or any(getattr(value, "takes_long", False) is True for value in values)


def _unit(item: pytest.Item) -> str:
    """Return the name of what is in one part."""
    mark = item.get_closest_marker("takes_long")
    unit = mark.kwargs.get("unit", "test") if mark else "test"
    if unit == "file":
        return item.nodeid.partition("::")[0]
    test = item.nodeid.partition("[")[0]
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if unit != "test" and unit not in parameters:
        raise UsageError(
            f"{item.nodeid}: takes_long(unit={unit!r}); expected 'test', 'file' or one of its"
            f" parameters: {', '.join(parameters) or 'it has none'}"
        )
    return test if unit == "test" else f"{test}[{parameters[unit]}]"


def part_of_long() -> tuple[int, int]:
    """Return which part of how many is to run: 1 of 0 if none is, 1 of 1 if all are.

    Raises
    ------
    UsageError
        MPISTRAT_TESTS_LONG is neither unset, 0, 1 nor a part, as ``3/16``.
    """
    text = os.environ.get("MPISTRAT_TESTS_LONG", "")
    if with_all() or text == "1":
        return 1, 1
    if text in ("", "0"):
        return 1, 0
    found = _PART.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(
            f"MPISTRAT_TESTS_LONG={text!r}: expected 1 for all tests that take long, 0 for none, "
            "or a part of them, as 3/16 for the third of 16"
        )
    return int(found[1]), int(found[2])
