"""Reads of values that parameter servers keep: in place on one machine, else by messages."""

import numpy as np
import pytest

from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import IndexedSlices, ShardedVariable, Variable
from mpistrat.ps.client.local_reads import LocalReader
from mpistrat.strategy.variables.remote import ServedVariable
from mpistrat.system.kernels import why_no_kernels
from mpistrat.tables.partitioners import FixedShardsPartitioner

WHOLE = np.arange(26.0).reshape(13, 2)


def zeros(strategy, *shape):
    with strategy.scope():
        return Variable(np.zeros(shape))


def parts_of(variable):
    return variable.variables if isinstance(variable, ShardedVariable) else [variable]


def reads(variable):
    """Return a variable's value by every way to read it."""
    with parts_of(variable)[-1].view() as view:
        last = view.copy()
        is_locked = not view.flags.writeable
    rows = variable.sparse_read([12, 0, 5, 5])
    return variable.numpy(), np.asarray(variable), rows, variable[3:11], last, is_locked


def check(found, whole, last_rows):
    value, array, rows, some, last, is_locked = found
    np.testing.assert_array_equal(value, whole)
    np.testing.assert_array_equal(array, whole)
    np.testing.assert_array_equal(rows, whole[[12, 0, 5, 5]])
    np.testing.assert_array_equal(some, whole[3:11])
    np.testing.assert_array_equal(last, whole[-last_rows:])
    assert is_locked


@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
def test_in_place_on_one_machine(layout, parts):
    @on_chief(layout, FixedShardsPartitioner(parts))
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(WHOLE)
        last_rows = parts_of(v)[-1].shape[0]
        check(reads(v), WHOLE, last_rows)
        v.assign_add(WHOLE)
        check(reads(v), WHOLE * 2, last_rows)
        check(coordinator.schedule(reads, args=(v,)).fetch(), WHOLE * 2, last_rows)
        if why_no_kernels() is None and not layout.node_size:
            assert all(part._local._reader is not None for part in parts_of(v))


@pytest.mark.parametrize("parts", [1, 3])
def test_by_asking_elsewhere(parts, monkeypatch):
    monkeypatch.setattr(LocalReader, "_found", lambda self: None)

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(parts))
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(WHOLE)
        last_rows = parts_of(v)[-1].shape[0]
        check(reads(v), WHOLE, last_rows)
        v.assign_add(WHOLE)
        for _ in range(2):  # then the ps says that it is as before
            check(reads(v), WHOLE * 2, last_rows)
        check(coordinator.schedule(reads, args=(v,)).fetch(), WHOLE * 2, last_rows)


def test_unchanged_parts_are_not_sent_again(monkeypatch):
    answers = []

    def answered(self, variables_found, known):
        answers.append(variables_found[1] is not None)
        return taken_in(self, variables_found, known)

    taken_in = ServedVariable._taken_in
    monkeypatch.setattr(ServedVariable, "_taken_in", answered)
    monkeypatch.setattr(LocalReader, "_found", lambda self: None)

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(3))
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(WHOLE)
        for expected in ([True] * 3, [False] * 3):
            answers.clear()
            np.testing.assert_array_equal(v.numpy(), WHOLE)
            assert answers == expected
        v.variables[1].assign_add(np.ones((4, 2)))
        answers.clear()
        assert v.numpy().sum() == WHOLE.sum() + 8.0
        assert answers == [False, True, False]


@on_jobs
def test_a_member_reads_what_it_has_changed(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        v = zeros(strategy, 8, 2)

        def count():
            for number in range(1, 101):
                v.assign_add(np.ones((8, 2)))
                v.scatter_add(IndexedSlices(np.ones((1, 2)), [7]))
                assert v.sparse_read([7, 0])[:, 0].tolist() == [2 * number, number]
                assert v.numpy()[0, 0] == number
            v.assign(np.zeros((8, 2)))
            return v.numpy().any()

        assert not coordinator.schedule(count).fetch()
        count()


@on_jobs
def test_a_function_sees_what_the_chief_changed_before(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        v = zeros(strategy, 20_000, 2)

        def ends():
            return v[0, 0], v.sparse_read([19_999])[0, 1]

        for number in range(50):
            v.assign(np.full((20_000, 2), float(number)))
            assert coordinator.schedule(ends).fetch() == (number, number)


@on_jobs
def test_a_view_keeps_its_value(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        v = zeros(strategy, 1000)
        seen = []
        with v.view() as first:
            v.assign(np.ones(1000))
            with v.view() as second:
                coordinator.schedule(lambda: v.assign(np.full(1000, 2.0)))
                coordinator.join()
                seen += [set(first.tolist()), set(second.tolist()), set(v.numpy().tolist())]
        assert seen == [{0.0}, {1.0}, {2.0}]


@on_jobs
def test_no_read_is_torn(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        v = zeros(strategy, 20_000, 4)

        def change(seed):
            for number in range(30):
                v.assign(np.full((20_000, 4), float(seed * 100 + number)))
                v.assign_add(np.full((20_000, 4), 0.5))

        def look():
            torn = 0
            rows = np.random.default_rng(0).integers(0, 20_000, 3000)
            for _ in range(60):
                for part in v.variables:
                    torn += np.unique(part.numpy()).size > 1
                    torn += np.unique(part.sparse_read(rows % 10_000)).size > 1
                    with part.view() as view:
                        torn += np.unique(view).size > 1
            return torn

        looks = []
        for seed in range(4):
            coordinator.schedule(change, args=(seed,))
            looks.append(coordinator.schedule(look))
        assert look() == 0
        assert [one.fetch() for one in looks] == [0] * 4
