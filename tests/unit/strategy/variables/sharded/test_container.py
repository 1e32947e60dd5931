"""A variable in parts as a Python object: its parts, copies, pickles and text."""

import copy
import io
import pickle
import weakref

import numpy as np
import pytest

from helpers.strategy.sharded_variables import WHOLE, make, same
from mpistrat import ShardedVariable, Variable
from mpistrat.errors import ArgumentTypeError, UsageError


def test_parts_know_their_whole(w):
    assert all(part.sharded is w for part in w.variables)
    assert w.distribute_strategy is w.variables[0].distribute_strategy
    assert w.distribute_strategy.extended.variable_created_in_scope(w)


def test_a_copy_has_copies_of_the_parts():
    w = make()
    other = copy.deepcopy(w)
    other.assign_add(np.ones_like(WHOLE))
    same(w, WHOLE)
    same(other, WHOLE + 1)
    assert all(part.sharded is other for part in other)
    assert copy.deepcopy(w.variables[1]).sharded is None


def test_it_travels_with_its_parts_or_finds_them_again():
    w = ShardedVariable([Variable.plain(initial_value=rows) for rows in (WHOLE[:4], WHOLE[4:])])
    other = pickle.loads(pickle.dumps(w))
    same(other, w)
    assert other.name == w.name
    assert all(part.sharded is other for part in other)

    class Here(pickle.Pickler):
        def persistent_id(self, thing):
            return next((i for i, part in enumerate(w.variables) if part is thing), None)

    class There(pickle.Unpickler):
        def persistent_load(self, number):
            return other.variables[number]

    for _ in range(2):
        file = io.BytesIO()
        Here(file).dump(w)
        assert There(io.BytesIO(file.getvalue())).load() is other


def test_it_goes_when_nobody_has_it():
    w = make()
    part, others = weakref.ref(w.variables[0]), w.variables[1:]
    del w
    assert part() is None
    assert all(other.sharded is None for other in others)


@pytest.mark.parametrize("given_", [[], None, 3, [1.0], Variable([1.0]), [Variable([1.0]), 2]])
def test_what_are_no_parts(given_):
    with pytest.raises(ArgumentTypeError, match="expected a list of variables"):
        ShardedVariable(given_)


def test_parts_that_do_not_fit():
    a = Variable(np.zeros((2, 3)))
    for other in (np.zeros((2, 4)), np.zeros(2), np.zeros((2, 3), np.float32)):
        with pytest.raises(UsageError, match="expected one dtype, and one shape"):
            ShardedVariable([a, Variable(other)])
    with pytest.raises(UsageError, match="a part has no rows"):
        ShardedVariable([Variable(1.0)])
    with pytest.raises(UsageError, match="already one"):
        ShardedVariable([a, a])
    whole = ShardedVariable([a])
    with pytest.raises(UsageError, match="already one"):
        ShardedVariable([a])
    assert a.sharded is whole


def test_there_is_no_length(w):
    with pytest.raises(TypeError, match=r"expected len\(w.variables\) or w.shape\[0\]"):
        len(w)
    assert list(w) == w.variables


def test_repr(w):
    shown = "<mpistrat.ShardedVariable 'w' shape=(13, 2) dtype=float32, 5 parts>"
    assert repr(w) == str(w) == f"{w}" == shown
