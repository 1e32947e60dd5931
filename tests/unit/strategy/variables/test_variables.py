"""Plain variables: what may be assigned, how they act in expressions, and their own rules."""

import ml_dtypes
import numpy as np
import pytest

from mpistrat import (
    MirroredStrategy,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    variable_creator_scope,
)


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


@pytest.fixture(params=["plain", "mirrored"])
def make(request):
    """Return a function that makes variables."""
    if request.param == "plain":
        yield Variable
        return
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        yield Variable


# ------------------------------------------------------------------------------ what is assigned

FITS = [
    (np.float32, 2, 2),
    (np.float32, 2.5, 2.5),
    (np.float32, np.float64(2.5), 2.5),
    (np.float32, np.int64(2), 2),
    (np.float32, True, 1),
    (np.float16, 2.5, 2.5),
    (ml_dtypes.bfloat16, 2.5, 2.5),
    (ml_dtypes.bfloat16, 3, 3),
    (np.int32, 7, 7),
    (np.int32, np.int64(7), 7),
    (np.int8, -128, -128),
    (np.uint8, 255, 255),
    (np.uint8, np.uint16(9), 9),
    (np.int32, True, 1),
    (np.bool_, True, True),
    (np.complex64, 1, 1),
    (np.complex64, 1.5, 1.5),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), FITS)
def test_values_that_fit(make, dtype, value, expected):
    variable = make(np.zeros((), dtype))
    assert variable.assign(value) is variable
    same(variable, np.array(expected, dtype))
    vector = make(np.zeros(2, dtype))
    vector.assign([value, value])
    same(vector, np.full(2, expected, dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, ml_dtypes.bfloat16])
def test_lists_of_python_integers_have_no_dtype(make, dtype):
    variable = make(np.zeros(2, dtype))
    variable.assign([3, 4])
    variable.assign_add((1, 1))
    same(variable, np.array([4, 5], dtype))


REFUSED = [
    (np.int32, 1.0, "same_kind"),
    (np.int32, np.float32(1), "same_kind"),
    (np.uint8, np.int64(3), "same_kind"),
    (np.bool_, np.int64(1), "same_kind"),
    (np.float64, 1j, "same_kind"),
    (np.int8, 300, "out of bounds"),
    (np.uint8, -1, "out of bounds"),
    pytest.param(np.float64, 10**400, "int too large", id="huge"),
    (np.float64, "2", "dtype"),
    (np.float64, None, "None is no array"),
]


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize(("dtype", "value", "match"), REFUSED)
def test_values_that_do_not_fit(make, method, dtype, value, match):
    variable = make(np.zeros((), dtype), name="v")
    with pytest.raises(ValueError, match=rf"(?s){method} of .*'v:0' of dtype.*{match}"):
        getattr(variable, method)(value)
    same(variable, np.zeros((), dtype))


@pytest.mark.parametrize("value", [1.0, [1.0], np.ones(3), np.ones((1, 2)), np.ones((2, 1))])
def test_shapes_must_be_equal(make, value):
    variable = make(np.zeros(2))
    for method in (variable.assign, variable.assign_add, variable.assign_sub):
        with pytest.raises(ValueError, match=r"of shape \(2,\); expected equal shapes"):
            method(value)
    same(variable, np.zeros(2))


def test_variables_are_assigned_to_variables(make):
    first, second = make([1.0, 2.0]), make([3.0, 4.0])
    first.assign(second)
    second.assign_add(first)
    second.assign_sub(second)
    same(first, np.array([3.0, 4.0]))
    same(second, np.zeros(2))


# --------------------------------------------------------------------------------- as an operand


@pytest.mark.parametrize(
    "expression",
    [
        lambda v: v + 1,
        lambda v: 1 - v,
        lambda v: v * v,
        lambda v: v @ v,
        lambda v: np.arange(3.0) @ v,
        lambda v: np.arange(3.0) / (v + 1),
        lambda v: v**2,
        lambda v: divmod(v, 2.0),
        lambda v: -v,
        abs,
        lambda v: v == 1,
        lambda v: v < np.ones(3),
        np.exp,
        np.sum,
        np.mean,
        lambda v: np.clip(v, 0, 1),
        lambda v: np.concatenate([v, v]),
        lambda v: np.where(v > 1, v, 0),
        lambda v: np.add.outer(v, v),
        lambda v: v[0],
        lambda v: v[1:],
        lambda v: v[v > 0],
        len,
        list,
        lambda v: 2.0 in v,
        lambda v: np.asarray(v, np.float32),
        lambda v: (v.shape, v.ndim, v.size, v.dtype),
    ],
)
def test_acts_as_its_value(make, expression):
    value = np.arange(3.0)
    actual, expected = expression(make(value)), expression(value)
    assert type(actual) is type(expected)
    if isinstance(expected, tuple):
        assert all(np.array_equal(a, b) for a, b in zip(actual, expected, strict=True))
    else:
        same(actual, expected)


def test_conversions(make):
    assert float(make(1.5)) == 1.5
    assert int(make(2)) == 2
    assert [10, 20, 30][make(1)] == 20
    assert not make(0.0)
    assert f"{make(1.25):.1f}" == "1.2"
    assert str(make(1.5, name="s")) == f"{make(1.5, name='s')}"
    assert len({make(1.0), make(1.0)}) == 2  # a variable is hashed by identity


def test_in_place_operators_are_refused_with_advice(make):
    variable = make(np.ones(2))
    with pytest.raises(TypeError, match=r"in place; use assign_add.*v = v \+ x"):
        variable += 1
    with pytest.raises(TypeError, match="in place"):
        np.exp(np.ones(2), out=variable)
    with pytest.raises(TypeError, match="item assignment"):
        variable[0] = 2.0
    array = np.zeros(2)
    array += variable  # the other way round it is an operand
    same(array, np.ones(2))
    same(variable, np.ones(2))


def test_reading_shares_memory_and_copies_do_not(make):
    variable = make(np.zeros(2))
    live, copy = variable.value(), variable.numpy()
    variable.assign([1.0, 2.0])
    same(live, np.array([1.0, 2.0]))
    same(copy, np.zeros(2))
    with pytest.raises(ValueError, match="read-only"):
        live[0] = 5.0
    np.array(variable)[0] = 9.0
    same(variable, np.array([1.0, 2.0]))


# -------------------------------------------------------------------------------------- creation


def test_the_initial_value_is_copied(make):
    value = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    variable = make(value)
    value[:] = -1.0
    same(variable, np.arange(6.0).reshape(2, 3))
    assert variable.value().flags.c_contiguous


@pytest.mark.parametrize("initial", [3, lambda: 3, np.int64(3), Variable(3)])
def test_dtype_and_names(make, initial):
    variable = make(initial, None, "w", np.float32)
    same(variable, np.float32(3))
    assert (variable.name, variable.trainable) == ("w:0", True)
    assert "'w:0' shape=() dtype=float32, numpy=3.0>" in repr(variable)


def test_trainable_rules(make):
    on_read = {"synchronization": VariableSynchronization.ON_READ}
    assert make(1.0, False).trainable is False
    assert make(1.0, **on_read).trainable is False
    with pytest.raises(ValueError, match="not trainable; got trainable=True"):
        make(1.0, True, **on_read)
    with pytest.raises(ValueError, match="expected a VariableSynchronization"):
        make(1.0, synchronization=3)
    with pytest.raises(ValueError, match="expected a VariableAggregation"):
        make(1.0, aggregation="sum")
    assert make(1.0, aggregation=VariableAggregation.SUM).aggregation.name == "SUM"


def test_what_is_no_initial_value(make):
    with pytest.raises(TypeError, match="needs an initial_value"):
        make()
    with pytest.raises(TypeError, match="None is no array"):
        make(None)
    with pytest.raises(ValueError, match="at most 4 positional"):
        make(1.0, True, "w", np.float32, VariableSynchronization.AUTO)


def test_creators(make):
    """The innermost is asked first, may change the arguments, and may make what it likes."""

    def rename(following, **kwargs):
        return following(**{**kwargs, "name": kwargs["name"] + "/renamed"})

    with variable_creator_scope(rename), variable_creator_scope(rename):
        assert make(1.0, name="w").name == "w/renamed/renamed:0"
    marker = object()
    with variable_creator_scope(lambda following, **kwargs: marker):
        assert make(1.0) is marker
    assert make(1.0, name="w").name == "w:0"
