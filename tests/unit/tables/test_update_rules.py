"""The optimizers' rules: native code has the bits of NumPy, and leaves to it what it must."""

from dataclasses import dataclass

import numpy as np
import pytest
from ml_dtypes import bfloat16

from mpistrat.system.kernels import why_no_kernels
from mpistrat.tables import native_updates, rule
from mpistrat.tables.native_updates import update_natively
from mpistrat.tables.update_rules import AdagradRule, AdamRule, SGDRule

RULES = {
    "sgd": SGDRule(),
    "momentum": SGDRule(momentum=0.9),
    "nesterov": SGDRule(momentum=0.9, nesterov=True),
    "adagrad": AdagradRule(),
    "adam": AdamRule(),
    "amsgrad": AdamRule(amsgrad=True),
}
DTYPES = [np.float32, np.float64, np.float16, bfloat16]
STEPS = 3
every_rule = pytest.mark.parametrize("one", RULES.values(), ids=RULES)
native = pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))


def numbers(rng, shape, dtype):
    """Return ordinary numbers, and among them the ends of the range, zeros and no numbers."""
    values = rng.normal(0, 10.0 ** rng.integers(-12, 12, shape), shape)
    odd = [0.0, -0.0, 1e-40, -1e-320, 1e30, -1e300, np.inf, -np.inf, np.nan]
    where = rng.random(shape) < 0.1
    with np.errstate(over="ignore"):
        return np.where(where, rng.choice(odd, shape), values).astype(dtype)


def start(one, rng, shape, dtype):
    wide = one.slot_dtype(np.dtype(dtype))
    slots = {name: np.full(shape, value, wide) for name, value in one.initial_slots().items()}
    return numbers(rng, shape, dtype), slots


def copied(variable, slots):
    return variable.copy(), {name: slot.copy() for name, slot in slots.items()}


def assert_bits(got, want):
    """Of what is no number only that it is none; else the same bits, of zeros the signs too."""
    are_none = np.isnan(want.astype(np.float64))
    assert np.array_equal(np.isnan(got.astype(np.float64)), are_none)
    assert np.where(are_none, 0, got).tobytes() == np.where(are_none, 0, want).tobytes()


def assert_alike(first, second):
    assert_bits(first[0], second[0])
    for name, slot in second[1].items():
        assert_bits(first[1][name], slot)


@native
@every_rule
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gradient_dtype", DTYPES)
def test_native_code_has_the_bits_of_numpy(one, dtype, gradient_dtype):
    rng = np.random.default_rng(3)
    for shape in [(), (0,), (1,), (7,), (33,), (31, 33), (2, 3, 171)]:
        mine = start(one, rng, shape, dtype)
        want = copied(*mine)
        for step in range(1, STEPS + 1):
            gradient, rate = numbers(rng, shape, gradient_dtype), 0.1 / step
            native = one.native_rule(step, rate)
            kept = [[mine[1][name]] for name in native.slots]
            assert update_natively(native, [mine[0]], [gradient], kept)
            with np.errstate(all="ignore"):
                one.apply_in_numpy(*want, gradient, step, rate)
            assert_alike(mine, want)


@native
@every_rule
def test_elements_that_begin_anywhere(one):
    rng = np.random.default_rng(4)
    for at in range(9):
        memory = numbers(rng, 64, np.float32)
        variable, slots = memory[at : at + 40], start(one, rng, 40, np.float32)[1]
        before, want = memory.copy(), copied(variable, slots)
        gradient = numbers(rng, 90, np.float32)[2 * at : 2 * at + 40]
        one.apply(variable, slots, gradient, 1, 0.1)
        with np.errstate(all="ignore"):
            one.apply_in_numpy(*want, gradient, 1, 0.1)
        assert_alike((variable, slots), want)
        assert_bits(memory[:at], before[:at])
        assert_bits(memory[at + 40 :], before[at + 40 :])


@native
def test_a_learning_rate_of_zero_keeps_the_signs_of_zeros():
    variable, gradient = np.array([-0.0, -0.0, 0.0, 0.0]), np.array([1.0, -1.0, 1.0, -1.0])
    want = variable.copy()
    SGDRule().apply(variable, {}, gradient, 1, 0.0)
    SGDRule().apply_in_numpy(want, {}, gradient, 1, 0.0)
    assert_bits(variable, want)


def with_gaps(value):
    return np.full((8, 2), value, np.float32)[:, 0]


LEFT_TO_NUMPY = {
    "a variable with gaps": lambda: (with_gaps(0), np.ones(8, np.float32)),
    "a gradient with gaps": lambda: (np.zeros(8, np.float32), with_gaps(1)),
    "another byte order": lambda: (np.zeros(8, ">f4"), np.ones(8, np.float32)),
    "an integer gradient": lambda: (np.zeros(8, np.float32), np.ones(8, np.int64)),
    "a subclass": lambda: (np.zeros(8, np.float32).view(np.memmap), np.ones(8, np.float32)),
    "long double": lambda: (np.zeros(8, np.longdouble), np.ones(8, np.float32)),
    "fewer dimensions": lambda: (np.zeros((1, 8), np.float32), np.ones(8, np.float32)),
}


@pytest.mark.parametrize("make", LEFT_TO_NUMPY.values(), ids=LEFT_TO_NUMPY)
def test_what_native_code_does_not_take(make):
    (variable, gradient), one = make(), SGDRule()
    assert not update_natively(one.native_rule(1, 0.5), [variable], [gradient], [])
    one.apply(variable, {}, gradient, 1, 0.5)
    assert np.all(variable == -0.5)


@native
def test_nothing_is_updated_where_one_is_not_taken():
    variables = [np.zeros(4), np.zeros(4)]
    gradients = [np.ones(4), np.ones(5)]
    assert not update_natively(SGDRule().native_rule(1, 0.5), variables, gradients, [])
    assert np.all(variables[0] == 0)
    with pytest.raises(ValueError, match="a gradient and each slot for each variable"):
        update_natively(SGDRule().native_rule(1, 0.5), variables, gradients[:1], [])


def test_a_read_only_variable_is_refused():
    variable = np.zeros(8)
    variable.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        SGDRule().apply(variable, {}, np.ones(8), 1, 0.5)


@native
@every_rule
def test_a_gradient_that_is_the_variable(one):
    """The gradient of half of a sum of squares is the variable itself."""
    mine = start(one, np.random.default_rng(5), 40, np.float32)
    want = copied(*mine)
    one.apply(*mine, mine[0], 1, 0.1)
    with np.errstate(all="ignore"):
        one.apply_in_numpy(*want, want[0], 1, 0.1)
    assert_alike(mine, want)


@native
def test_arrays_that_overlap_in_part():
    for shift in (1, 5):
        memory = np.arange(20.0)
        want = memory.copy()
        SGDRule().apply(memory[shift : shift + 10], {}, memory[:10], 1, 0.5)
        SGDRule().apply_in_numpy(want[shift : shift + 10], {}, want[:10].copy(), 1, 0.5)
        np.testing.assert_array_equal(memory, want)
    slot = np.ones(4)
    native = SGDRule(momentum=0.5).native_rule(1, 0.5)
    assert not update_natively(native, [np.zeros(4)], [slot], [[slot]])
    assert not update_natively(native, [slot], [np.ones(4)], [[slot]])


@dataclass(frozen=True)
class Twice(SGDRule):
    """A rule of a user's own, which inherits the native of another."""

    def change(self, slots, gradient, step, learning_rate):
        return gradient * (-2 * learning_rate)


def test_a_subclass_has_its_own_arithmetic():
    variable = np.zeros(3)
    assert Twice().native_rule(1, 0.5) is None
    Twice().apply(variable, {}, np.ones(3), 1, 0.5)
    assert variable.tolist() == [-1.0] * 3


@every_rule
def test_without_kernels(one, monkeypatch):
    rng = np.random.default_rng(6)
    mine = start(one, rng, 9, np.float32)
    want, gradient = copied(*mine), numbers(rng, 9, np.float32)
    one.apply(*want, gradient, 1, 0.1)
    monkeypatch.setattr(native_updates, "why_no_kernels", lambda: "no compiler")
    asked = []
    monkeypatch.setattr(rule, "update_natively", lambda *a: asked.append(update_natively(*a)))
    with np.errstate(all="ignore"):
        one.apply(*mine, gradient, 1, 0.1)
    assert asked == [False]
    assert_alike(mine, want)
