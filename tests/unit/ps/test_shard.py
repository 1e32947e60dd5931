"""Shards: whole states are read, whatever is written meanwhile.

In memory that could be shared, in private memory, and without the kernels.
"""

import contextlib
import threading

import ml_dtypes
import numpy as np
import pytest

from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.ps.storage import shard as shard_module
from mpistrat.ps.storage.shard import Shard
from mpistrat.tables import rows as row_functions
from mpistrat.tables.rows import check_result
from mpistrat.tables.update_rules import AdamRule, SGDRule

DTYPES = pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int64, np.float16, ml_dtypes.bfloat16], ids=str
)


@pytest.fixture(params=["shared", "private", "numpy"], autouse=True)
def kind(request, monkeypatch):
    if request.param == "numpy":
        for module in (shard_module, row_functions):
            monkeypatch.setattr(module, "why_no_kernels", lambda: "no compiler")
    elif shard_module.why_no_kernels():
        pytest.skip(shard_module.why_no_kernels())
    return request.param


@pytest.fixture
def make(kind):
    made = []

    def make_shard(value):
        made.append(Shard(value, shared=kind == "shared"))
        return made[-1]

    yield make_shard
    for one in made:
        one.close()


def table(dtype=np.float32):
    return np.arange(12).reshape(4, 3).astype(dtype)


@DTYPES
def test_changes_are_numpys(dtype, make):
    value, one = table(dtype), make(table(dtype))
    assert (one.shape, one.dtype, one.version) == ((4, 3), np.dtype(dtype), 0)
    one.assign(value + value)
    one.add(value)
    one.assign_rows([2, 0, 2], value[:3])
    one.add_rows([3, 1, 3], value[:3])
    one.add_rows([], np.zeros((0, 3), dtype))
    assert one.version == 5
    expected = value * np.array(3, dtype)
    expected[0], expected[2] = value[1], value[2]
    expected[1] += value[1]
    expected[3] += value[0] + value[2]
    np.testing.assert_array_equal(one.read(), expected)
    for whole in (True, False):
        np.testing.assert_array_equal(one.read(whole=whole), expected)
        some = one.read_rows([3, 0, 3], whole=whole)
        np.testing.assert_array_equal(some, expected[[3, 0, 3]])


def test_the_first_value_and_copies_are_apart_from_the_shard(make):
    value = table()
    one = make(value)
    value[:] = -1
    copy, rows = one.read(), one.read_rows([1])
    one.add(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(copy, table())
    np.testing.assert_array_equal(rows, table()[[1]])


def test_reads_into_memory_of_the_caller(make):
    one, out, some = make(table()), np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32)
    assert one.read(out) is out
    assert one.read_rows([1, 3], some) is some
    np.testing.assert_array_equal(out, table())
    np.testing.assert_array_equal(some, table()[[1, 3]])
    with pytest.raises(UsageError, match="expected a writeable array of shape"):
        one.read(some)
    apart = np.zeros((4, 6), np.float32)[:, ::2]
    assert one.read(apart) is apart
    np.testing.assert_array_equal(apart, table())


def test_a_view_keeps_its_version_and_costs_no_copy(make):
    one = make(table())
    with one.view() as first:
        one.add_rows([0], np.ones((1, 3), np.float32))
        with one.view() as second:
            one.assign(np.zeros((4, 3), np.float32))
            np.testing.assert_array_equal(first, table())
            np.testing.assert_array_equal(second[0], table()[0] + 1)
        with one.view() as third, one.view() as fourth:
            assert not third.any()
            assert np.shares_memory(third, fourth)
        assert not first.flags.writeable
    assert one.version == 2


def test_rules_update_it(make):
    one, slots = make(table()), {}
    one.apply(SGDRule(), slots, np.ones((4, 3), np.float32), 1, 0.5)
    np.testing.assert_array_equal(one.read(), table() - 0.5)
    lazy, kept = (
        AdamRule(lazy=True),
        {n: np.zeros((4, 3), np.float32) for n in ("momentum", "velocity")},
    )
    one.apply_rows(lazy, kept, [2], np.ones((1, 3), np.float32), 1, 0.25)
    np.testing.assert_allclose(one.read_rows([2]), table()[[2]] - 0.75, rtol=1e-5)
    np.testing.assert_array_equal(one.read_rows([1]), table()[[1]] - 0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16], ids=str)
def test_rules_update_all_of_it_and_its_slots_into_other_memory(make, dtype):
    one, rule = make(table(dtype)), AdamRule(amsgrad=True)
    wide = rule.slot_dtype(np.dtype(dtype))
    slots = {n: make(np.zeros((4, 3), wide)) for n in rule.initial_slots()}
    want, kept = table(dtype), {n: np.zeros((4, 3), wide) for n in slots}
    for step in (1, 2, 3):
        gradient = table(np.float32) - step
        with one.view() as before, slots["velocity"].view() as velocity:
            seen = before.copy(), velocity.copy()
            one.apply(rule, slots, gradient, step, 0.1)
            np.testing.assert_array_equal(before, seen[0])
            np.testing.assert_array_equal(velocity, seen[1])
        rule.apply_in_numpy(want, kept, gradient, step, 0.1)
        np.testing.assert_array_equal(one.read(), want)
        for name, slot in slots.items():
            np.testing.assert_array_equal(slot.read(), kept[name])
            assert slot.version == step


def test_a_rule_that_raises_changes_nothing(make):
    one, slots = make(table()), {"momentum": make(table())}

    class Wrong(SGDRule):
        def change(self, slots, gradient, step, learning_rate):
            slots["momentum"] += 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        one.apply(Wrong(momentum=0.5), slots, np.ones((4, 3), np.float32), 1, 0.5)
    for each in (one, slots["momentum"]):
        np.testing.assert_array_equal(each.read(), table())
        assert each.version == 0


@pytest.mark.parametrize("rows", [[4], [-1], [0, 1, 9]])
def test_rows_out_of_range_change_nothing(rows, make):
    one, values = make(table()), np.ones((len(rows), 3), np.float32)
    for call in (one.assign_rows, one.add_rows):
        with pytest.raises(UsageError, match="expected 0 to 3"):
            call(rows, values)
    with pytest.raises(UsageError, match="expected 0 to 3"):
        one.read_rows(rows)
    assert one.version == 0
    np.testing.assert_array_equal(one.read(), table())


def test_wrong_arguments(make):
    one = make(table())
    with pytest.raises(UsageError, match=r"expected \(4, 3\)"):
        one.add(np.ones(3, np.float32))
    with pytest.raises(ArgumentTypeError, match="convert it with astype"):
        one.add(np.ones((4, 3), complex))
    with pytest.raises(ArgumentTypeError, match="expected whole numbers"):
        one.read_rows([0.5])
    with pytest.raises(ArgumentTypeError, match="a shard with rows"):
        make(1.0).read_rows([0])


def test_a_failed_change_is_no_change(make):
    class Broken(SGDRule):
        def apply(self, variable, *_):
            raise RuntimeError("no")

    one = make(table())
    with pytest.raises(RuntimeError, match="no"):
        one.apply(Broken(), {}, table(), 1, 1.0)
    assert one.version == 0
    one.add(table())
    np.testing.assert_array_equal(one.read(), 2 * table())


@pytest.mark.deadline(60)
def test_copies_and_views_are_never_torn(make):
    one, ended, torn = make(np.zeros((500, 64), np.int64)), threading.Event(), []

    def read():
        while not ended.is_set():
            with one.view() as view:
                seen = [one.read(), one.read_rows(np.arange(0, 500, 7)), view]
                torn.extend(array for array in seen if array.min() != array.max())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for value in range(300):
        one.assign(np.full((500, 64), value))
        one.add_rows(np.arange(500), np.ones((500, 64), np.int64))
    ended.set()
    for thread in readers:
        thread.join()
    assert not torn


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 3, 4)])
def test_any_shape(shape, make):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float64)
    one = make(value)
    one.add(value)
    with one.view() as view:
        one.assign(value)
        np.testing.assert_array_equal(view, 2 * value)
    np.testing.assert_array_equal(one.read(), value)
    assert one.read().shape == shape


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
def test_halves_are_rounded_once_a_row(dtype, make):
    """A thousand that are too small to count one by one."""
    one = make(np.full((2, 5), 4096, dtype))
    one.add_rows([1] * 1000, np.ones((1000, 5), dtype))
    expected = np.full((2, 5), 4096.0)
    expected[1] += 1000
    np.testing.assert_array_equal(one.read(), expected.astype(dtype))


def test_views_of_many_versions(make):
    """Some may be copies; each is what it was."""
    one = make(table(np.int64))
    with contextlib.ExitStack() as stack:
        views = []
        for _ in range(12):
            views.append(stack.enter_context(one.view()))
            one.add(np.ones((4, 3), np.int64))
            one.add_rows([0], np.zeros((1, 3), np.int64))
        for i, view in enumerate(views):
            np.testing.assert_array_equal(view, table(np.int64) + i)
    for _ in range(3):
        one.add(np.ones((4, 3), np.int64))
    np.testing.assert_array_equal(one.read(), table(np.int64) + 15)


def test_any_change_is_seen_at_its_end_or_not_at_all(make):
    one = make(table())

    def give_up():
        with one.rewriting() as array:
            array[:] = -1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    with one.rewriting() as array:
        np.testing.assert_array_equal(array, table())
        array[1] = 7
        np.testing.assert_array_equal(one.read(), table())
    assert one.version == 1
    np.testing.assert_array_equal(one.read_rows([1]), np.full((1, 3), 7))


@pytest.mark.deadline(60)
def test_updates_of_several_threads_add_up(make):
    one, slots = make(np.zeros((8, 4), np.float32)), {"momentum": np.zeros((8, 4), np.float32)}

    def update():
        for _ in range(200):
            one.apply_rows(SGDRule(), {}, [1, 5], -np.ones((2, 4)), 1, 1.0)
            one.add_rows([1], np.ones((1, 4), np.float32))

    threads = [threading.Thread(target=update) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(one.read_rows([1, 5])[:, 0], [1200, 600])
    one.apply_rows(SGDRule(momentum=0.5), slots, [2], np.ones((1, 4)), 1, 1.0)
    assert slots["momentum"][2, 0] == -1


@pytest.mark.parametrize("result", [-6, 0, 7])
def test_indices_that_change_during_a_call_are_an_error(result):
    with pytest.raises(UsageError, match=r"changed during the call; .*: hand over a copy"):
        check_result(result, "scatter_add")
