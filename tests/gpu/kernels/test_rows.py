"""Rows that are added on a GPU through CuPy, by indices of the host and there, few and many."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from helpers.gpu_kernels.arrays import dtype_of, random_values, same_bits
from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.backends.gpu.kernels import row_order, row_sums, rows
from mpistrat.errors import BackendUnavailableError, UsageError
from mpistrat.tables.row_order import in_order

try:
    gpu_devices.require(["GPU:0"])
except BackendUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

import cupy

COLUMNS = 3
MOST_BY_HOST = rows._MAX_ORDERED_BY_HOST
COUNTS = (1, 7, MOST_BY_HOST, MOST_BY_HOST + 1, row_order.TILE, row_order.TILE + 1, 9000)
PLACES = {
    "host": np.asarray,
    "GPU": cupy.asarray,
    "GPU, each second": lambda one: cupy.asarray(np.repeat(one, 2))[::2],
}


def made(count, num_rows, dtype="float32"):
    """Return a table, what is added, and indices of which many are equal."""
    draw = np.random.default_rng(count)
    table = random_values(draw, dtype_of(dtype), num_rows * COLUMNS).reshape(num_rows, COLUMNS)
    values = random_values(draw, dtype_of(dtype), count * COLUMNS).reshape(count, COLUMNS)
    indices = draw.integers(0, num_rows, count) * draw.integers(0, 2, count)
    return table, values, indices


@pytest.fixture
def launches(monkeypatch):
    """Return the names of the kernels that order, as they are launched."""
    names, kernel = [], row_order.kernel

    def counted(device, name, **options):
        names.append(name)
        return kernel(device, name, **options)

    monkeypatch.setattr(row_order, "kernel", counted)
    return names


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("num_rows", [1, 200, 70_000])
@pytest.mark.parametrize("count", COUNTS)
def test_rows_have_the_hosts_sums(count, num_rows, place):
    table, values, indices = made(count, num_rows)
    there, given = cupy.asarray(table), PLACES[place](indices)
    rows.scatter_add(there, given, cupy.asarray(values))
    with np.errstate(all="ignore"):
        np.add.at(table, indices, values)
    assert same_bits(there.get(), table)
    assert (on_device.to_host(given) if place != "host" else given).tolist() == indices.tolist()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"])
def test_indices_of_each_dtype(kind):
    table, values, indices = made(3000, 100)
    there = cupy.asarray(table)
    rows.scatter_add(there, cupy.asarray(indices.astype(kind)), cupy.asarray(values))
    with np.errstate(all="ignore"):
        np.add.at(table, indices, values)
    assert same_bits(there.get(), table)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("wrong", [-1, 200, 2**40])
def test_an_index_that_is_no_row_changes_nothing(wrong, count, place):
    table, values, indices = made(count, 200)
    indices[[count // 2, count - 1]] = wrong
    there = cupy.asarray(table)
    text = f"^index {wrong} at position {count // 2}; expected 0 to 199$"
    with pytest.raises(UsageError, match=text):
        rows.scatter_add(there, PLACES[place](indices), cupy.asarray(values))
    assert same_bits(there.get(), table)


@pytest.mark.parametrize("count", [5, 5000])
def test_indices_that_are_checked_are_not_waited_for(count):
    table, values, indices = made(count, 200)
    there, given = cupy.asarray(table), cupy.asarray(indices)
    added = cupy.asarray(values)
    with patch.object(row_order, "PendingIndexCheck") as check:
        rows.scatter_add(there, given, added, are_checked=True)
    check.assert_not_called()
    with np.errstate(all="ignore"):
        np.add.at(table, indices, values)
    assert same_bits(there.get(), table)
    given[0] = -5  # after they were checked
    rows.scatter_add(there, given, added, are_checked=True)
    assert same_bits(there.get(), table)


def test_who_orders(launches):
    """Few indices of the host: the host. Others: as few launches as their number needs."""
    for place, count, names in (
        ("host", MOST_BY_HOST, []),
        ("host", MOST_BY_HOST + 1, ["order_few"]),
        ("GPU", 1, ["order_few"]),
        ("GPU", row_order.TILE, ["order_few"]),
        ("GPU", row_order.TILE + 1, ["make_keys", "order_digit", "order_digit", "order_digit"]),
    ):
        launches.clear()
        table, values, indices = made(count, 70_000)
        rows.scatter_add(cupy.asarray(table), PLACES[place](indices), cupy.asarray(values))
        assert launches == names, (place, count)


@pytest.mark.parametrize("place", ["host", "GPU"])
def test_more_than_the_kernels_count_are_ordered_on_the_host(place, launches, monkeypatch):
    monkeypatch.setattr(row_order, "MAX_INDICES", 1500)
    table, values, indices = made(1501, 200)
    there = cupy.asarray(table)
    rows.scatter_add(there, PLACES[place](indices), cupy.asarray(values))
    with np.errstate(all="ignore"):
        np.add.at(table, indices, values)
    assert same_bits(there.get(), table)
    assert launches == []


def test_mistakes_are_named():
    table, values = cupy.zeros((5, 2)), cupy.zeros((2, 2))
    for indices in (np.array([0.0, 1.0]), cupy.array([0.0, 1.0])):
        with pytest.raises(UsageError, match="indices of dtype float64; expected whole numbers"):
            rows.scatter_add(table, indices, values)


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("count", [1, 50, 5000])
def test_sums_of_rows(count, kind):
    _, values, indices = made(count, 200, kind)
    found = row_sums.row_sums(cupy.asarray(indices), cupy.asarray(values), 200)
    want = np.zeros((200, COLUMNS), dtype_of("float32" if kind == "float16" else kind))
    with np.errstate(all="ignore"):
        np.add.at(want, indices, values.astype(want.dtype))
        want = want.astype(values.dtype)
    ordered, _ = in_order(indices)
    if count == 1:
        assert found is None
        return
    assert found[0].dtype == indices.dtype
    assert found[0].tolist() == np.unique(ordered).tolist()
    assert same_bits(found[1].get(), want[np.unique(ordered)])


def test_rows_that_come_once_in_order_have_no_sums():
    values = cupy.ones((4, 2))
    assert row_sums.row_sums(cupy.array([0, 3, 4, 9]), values, 10) is None
    found = row_sums.row_sums(cupy.array([3, 0, 4, 9]), values * cupy.arange(4.0)[:, None], 10)
    assert [one.tolist() for one in found] == [[0, 3, 4, 9], [[1, 1], [0, 0], [2, 2], [3, 3]]]
