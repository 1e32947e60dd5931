"""Sorted row numbers and their positions are those of a stable sort."""

import numpy as np
import pytest

from mpistrat.tables.row_order import in_order

LENGTHS = [0, 1, 2, 499, 500, 501, 5000]
KINDS = ["int8", "uint8", "int32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("count", LENGTHS)
def test_random_rows(dtype: str, count: int) -> None:
    draw = np.random.default_rng(count)
    limits = np.iinfo(dtype)
    for low, high in ((0, 3), (0, 100), (0, limits.max), (max(limits.min, -50), 50)):
        rows = draw.integers(low, high, count, dtype=dtype, endpoint=True)
        for given in (rows, np.sort(rows), np.sort(rows)[::-1]):
            before = given.copy()
            ordered, positions = in_order(given)
            order = np.argsort(before, kind="stable")
            assert ordered.dtype == given.dtype
            assert (ordered == before[order]).all()
            assert (positions == order).all()
            assert (given == before).all()


def test_rows_whose_numbers_leave_no_room_for_positions() -> None:
    rows = np.array([2**63 - 1, 5, 2**63 - 1] * 400)
    ordered, positions = in_order(rows)
    assert (positions == np.argsort(rows, kind="stable")).all()
    assert (ordered == np.sort(rows)).all()
