"""The tests below this folder share jobs of ranks, and share none with other tests."""

from pathlib import Path

import pytest

from mpistrat.testing.placement import SIZE_PARAMETER, marked_sizes
from mpistrat.testing.sets import takes_long

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test of two and of more ranks take long on more: here are two cores.

    On three ranks tests/conformance shows, in each run, what all operations do with some dtypes.
    """
    for item in items:
        if HERE not in item.path.parents or not isinstance(item, pytest.Function):
            continue
        ranks = getattr(item, "callspec", None) and item.callspec.params.get(SIZE_PARAMETER, 0)
        is_marked = item.get_closest_marker("takes_long") is not None  # which may name a unit
        if ranks and ranks > 2 and 2 in marked_sizes(item) and not is_marked:
            item.add_marker(takes_long())
