"""Tell which tests are to run: all have the short ones; long ones and repeats are asked for.

Long tests are many: a run can have one part of them, and the next run another.
"""

from __future__ import annotations

import os
import re
from zlib import crc32

import pytest

from mpistrat.errors import UsageError

__all__ = ["left_out", "repeats", "takes_long", "with_all", "with_long"]

_PART = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})")


def takes_long(*, unit: str = "test") -> pytest.MarkDecorator:
    """Mark a test, a case or a module that is the only one of a promise, but takes long.

    A case is one, too, that has a parameter whose attribute ``takes_long`` is true.

    Parameters
    ----------
    unit
        What is in one part of the long tests, as it shares a job or a fixture: all cases of a
        ``"test"``, all tests of a ``"file"``, or cases with one value of the parameter named here.
    """
    return pytest.mark.takes_long(unit=unit)


def repeats() -> pytest.MarkDecorator:
    """Mark a test, a case or a module that shows in another way what others show as well."""
    return pytest.mark.skipif(not with_all(), reason="repeats; MPISTRAT_TESTS_ALL=1 runs it")


def with_long() -> bool:
    """Tell whether all tests are to run that are the only ones of a promise, but take long."""
    return _part_of_long() == (1, 1)


def with_all() -> bool:
    """Tell whether tests are to run that repeat others: on more ranks, layouts, dtypes or data."""
    return os.environ.get("MPISTRAT_TESTS_ALL", "") == "1"


def left_out(item: pytest.Item) -> str:
    """Return why a test is not to run; an empty text if it is.

    Raises
    ------
    UsageError
        MPISTRAT_TESTS_LONG is neither 0, 1 nor a part, as ``3/16``.
    """
    part, parts = _part_of_long()
    if not _takes_long(item) or (parts and crc32(_unit(item).encode()) % parts == part - 1):
        return ""
    if parts:
        return f"takes long, and is not in part {part} of {parts}; MPISTRAT_TESTS_LONG=1 runs it"
    return "takes long; MPISTRAT_TESTS_LONG=1 runs it"


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
    return test if unit == "test" else f"{test}[{parameters[unit]}]"


def _part_of_long() -> tuple[int, int]:
    """Return which part of how many is to run; of 0 for none, of 1 for all."""
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
