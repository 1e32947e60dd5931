"""Optimizers in one process: their arithmetic, gradients of rows, and what is refused."""

import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import mpistrat
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError
from mpistrat.optimizers import SGD, Adagrad, Adam
from mpistrat.strategy.variables import updating
from mpistrat.tables import native_updates
from mpistrat.testing.sets import takes_long

MAKERS = {
    "sgd": lambda **how: SGD(0.1),
    "momentum": lambda **how: SGD(0.1, 0.9, **how),
    "nesterov": lambda **how: SGD(0.1, 0.9, nesterov=True, **how),
    "adagrad": lambda **how: Adagrad(0.1),
    "adam": lambda **how: Adam(0.1, **how),
    "amsgrad": lambda **how: Adam(0.1, amsgrad=True, **how),
}
every_optimizer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def variable(shape=(5, 2), dtype=np.float64, name="w"):
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    return mpistrat.Variable(values.astype(dtype), name=name)


def test_gradient_descent():
    w = mpistrat.Variable([1.0, 2.0])
    SGD(0.5).apply_gradients([(np.array([1.0, -1.0]), w)])
    assert w.numpy().tolist() == [0.5, 2.5]


def test_momentum_adds_part_of_the_last_update_again():
    w, optimizer = mpistrat.Variable([0.0]), SGD(1.0, 0.5)
    for _ in range(3):
        optimizer.apply_gradients([(np.array([1.0]), w)])
    assert w.numpy().tolist() == [-(1 + 1.5 + 1.75)]


def test_the_first_step_of_adam_is_as_long_as_its_learning_rate():
    w = mpistrat.Variable([0.0, 0.0])
    Adam(0.25, epsilon=0.0).apply_gradients([(np.array([3.0, -0.01]), w)])
    np.testing.assert_allclose(w.numpy(), [-0.25, 0.25], rtol=1e-12)


def test_adagrad_steps_shrink():
    w, optimizer = mpistrat.Variable([0.0]), Adagrad(1.0, 0.0, 0.0)
    changes = []
    for _ in range(3):
        before = w.numpy()[0]
        optimizer.apply_gradients([(np.array([2.0]), w)])
        changes.append(before - w.numpy()[0])
    np.testing.assert_allclose(changes, 1 / np.sqrt([1, 2, 3]), rtol=1e-12)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("in_replica", [False, True])
@pytest.mark.parametrize(
    "strategy",
    [
        lambda: mpistrat.MirroredStrategy(["CPU:0", "CPU:1"]),
        lambda: mpistrat.CentralStorageStrategy(["CPU:0", "CPU:1"]),
        lambda: mpistrat.OneDeviceStrategy("CPU:0"),
    ],
    ids=["mirrored", "central", "one device"],
)
def test_an_interrupt_comes_before_or_after_a_step(strategy, in_replica, monkeypatch):
    """Not between the change of two variables, nor between it and the count of steps."""
    strategy, update, is_due = strategy(), updating.update_together, [False, True]
    with strategy.scope():
        variables, optimizer = [mpistrat.Variable([0.0]) for _ in range(2)], SGD(1.0)

    def update_and_interrupt(native, updates, update_alone):
        for one in updates:
            update(native, [one], update_alone)
            if is_due and is_due.pop(0):
                signal.raise_signal(signal.SIGINT)

    def step():
        ones = [np.ones(1) / (strategy.num_replicas_in_sync if in_replica else 1)] * 2
        optimizer.apply_gradients(zip(ones, variables, strict=True))

    monkeypatch.setattr(updating, "update_together", update_and_interrupt)
    for interrupt_at in ([True, False], [False, True]):
        before, is_due[:] = optimizer.iterations, interrupt_at
        with pytest.raises(KeyboardInterrupt):
            strategy.run(step) if in_replica else step()
        assert optimizer.iterations == before + 1
        assert [one.numpy().tolist() for one in variables] == [[-before - 1.0]] * 2


rows_of_five = st.lists(st.integers(0, 4), min_size=0, max_size=9)


@takes_long()
@every_optimizer
@given(steps=st.lists(rows_of_five, min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_gradient_of_rows_is_one_of_all_with_zeros(make, steps, seed):
    random = np.random.default_rng(seed)
    dense, sparse = variable(), variable()
    of_dense, of_sparse = make(), make()
    for rows in steps:
        values = random.normal(size=(len(rows), 2))
        gradient = mpistrat.IndexedSlices(values, np.array(rows, int), (5, 2))
        of_sparse.apply_gradients([(gradient, sparse)])
        of_dense.apply_gradients([(np.asarray(gradient), dense)])
    np.testing.assert_array_equal(sparse.numpy(), dense.numpy())


@every_optimizer
def test_lazy_ones_leave_other_rows_and_what_is_kept_of_them(make):
    w, optimizer = variable(), make(lazy=True)
    optimizer.apply_gradients([(np.ones((5, 2)), w)])
    before = [v.numpy() for v in (w, *optimizer.variables[1:])]
    optimizer.apply_gradients([(mpistrat.IndexedSlices(np.ones((1, 2)), [3]), w)])
    after = [v.numpy() for v in (w, *optimizer.variables[1:])]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(np.delete(old, 3, 0), np.delete(new, 3, 0))
    assert not np.array_equal(before[0][3], after[0][3])


@every_optimizer
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
def test_half_types_are_updated_in_float32(make, dtype):
    w, exact = variable(dtype=dtype), variable(dtype=np.float32)
    one, other = make(), make()
    for _ in range(5):
        before = w.numpy().astype(np.float32)
        exact.assign(before)
        one.apply_gradients([(np.full((5, 2), 0.5, dtype), w)])
        other.apply_gradients([(np.full((5, 2), 0.5, np.float32), exact)])
        np.testing.assert_array_equal(w.numpy(), exact.numpy().astype(dtype))
    assert w.dtype == dtype
    assert all(v.dtype == np.float32 for v in one.variables[1:])


def test_what_it_keeps():
    w, optimizer = variable(), Adam()
    assert (optimizer.iterations, optimizer.variables) == (0, [])
    optimizer.build([w])
    optimizer.apply_gradients([(np.ones((5, 2)), w)])
    names = ["Adam/iteration:0", "w/momentum:0", "w/velocity:0"]
    assert [v.name for v in optimizer.variables] == names
    assert optimizer.iterations == 1
    assert not any(v.trainable for v in optimizer.variables)


@every_optimizer
def test_training_goes_on_from_a_checkpoint(make, tmp_path):
    gradients = np.random.default_rng(3).normal(size=(6, 5, 2))
    w, optimizer = variable(), make()
    for gradient in gradients[:3]:
        optimizer.apply_gradients([(gradient, w)])
    path = mpistrat.train.Checkpoint(w=w, optimizer=optimizer).save(tmp_path / "ckpt")
    again, other = variable(name="other"), make()
    other.build([again])
    restored = mpistrat.train.Checkpoint(w=again, optimizer=other)
    restored.restore(path).assert_consumed()
    for gradient in gradients[3:]:
        optimizer.apply_gradients([(gradient, w)])
        other.apply_gradients([(gradient, again)])
    assert other.iterations == optimizer.iterations == 6
    np.testing.assert_array_equal(again.numpy(), w.numpy())


def test_variables_that_come_later():
    first, second, optimizer = variable(), variable(), SGD(1.0, 0.9)
    optimizer.apply_gradients([(np.ones((5, 2)), first)])
    optimizer.apply_gradients([(np.ones((5, 2)), second), (None, first)])
    np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_a_learning_rate_may_follow_the_steps_and_may_be_set():
    w, optimizer = mpistrat.Variable([0.0]), SGD(lambda step: 10.0**-step)
    for _ in range(3):
        optimizer.apply_gradients([(np.array([-1.0]), w)])
    np.testing.assert_allclose(w.numpy(), [1.11])
    optimizer.learning_rate = 2
    optimizer.apply_gradients([(np.array([-1.0]), w)])
    np.testing.assert_allclose(w.numpy(), [3.11])


def test_nothing_changes_if_one_gradient_does_not_fit():
    w, other, optimizer = variable(), variable(name="other"), SGD()
    before = w.numpy()
    with pytest.raises(UsageError, match=r"shape \(2, 2\) for variable 'other:0' of shape \(5, 2"):
        optimizer.apply_gradients([(np.ones((5, 2)), w), (np.ones((2, 2)), other)])
    np.testing.assert_array_equal(w.numpy(), before)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda w: SGD(momentum=2), UsageError, "momentum=2; expected a number from 0 to 1"),
        (lambda w: Adam(beta_2=1.0), UsageError, "beta_2=1.0; expected"),
        (lambda w: Adagrad(initial_accumulator_value=-1), UsageError, "expected no less than 0"),
        (
            lambda w: SGD(lambda step: None).apply_gradients([(np.ones((5, 2)), w)]),
            ArgumentTypeError,
            "learning rate of step 0 is None; expected a number",
        ),
        (lambda w: SGD("fast"), ArgumentTypeError, "learning_rate='fast'; expected a number"),
        (lambda w: SGD().apply_gradients([]), UsageError, "no variable has a gradient"),
        (lambda w: SGD().apply_gradients([(None, w)]), UsageError, "no variable has a gradient"),
        (lambda w: SGD().apply_gradients([(1.0, 2.0)]), ArgumentTypeError, "got a float"),
        (lambda w: SGD().apply_gradients((np.ones(2), w)), ArgumentTypeError, "expected pairs of"),
        (
            lambda w: SGD().apply_gradients([(1, mpistrat.Variable(1))]),
            UsageError,
            "of dtype int64 has no gradient",
        ),
        (
            lambda w: SGD().apply_gradients([(mpistrat.IndexedSlices([[1.0, 1]], [5]), w)]),
            UsageError,
            "are no rows of an array of 5, the first is 5",
        ),
        (
            lambda w: SGD().apply_gradients([(mpistrat.IndexedSlices([1.0], [0]), w)]),
            UsageError,
            r"gradient of shape \(5,\)",
        ),
    ],
)
def test_what_cannot_be_right(call, error, text):
    with pytest.raises(error, match=text):
        call(variable())


def test_updates_are_made_in_their_order():
    """A variable that comes twice, rows first; and gradients that are views of other variables."""

    def trained(kernels, monkeypatch):
        with monkeypatch.context() as patched:
            if not kernels:
                patched.setattr(native_updates, "why_no_kernels", lambda: "no compiler")
            v, w, optimizer = variable(), variable(name="w"), Adagrad(0.5)
            rows = mpistrat.IndexedSlices(np.ones((1, 2)), [3])
            pairs = [(rows, v), (np.full((5, 2), 3.0), v), (v.value()[::-1], w), (w.value(), v)]
            optimizer.apply_gradients(pairs)
            return v.numpy(), w.numpy()

    with pytest.MonkeyPatch.context() as patch:
        for got, want in zip(trained(True, patch), trained(False, patch), strict=True):
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("make", [float, np.float64, np.float32, np.longdouble])
def test_hyperparameters_of_any_kind_are_numbers_of_python(make):
    w, reference = variable(dtype=np.float32), variable(dtype=np.float32)
    number = float(make(0.9))
    for one, other in [
        (SGD(make(0.1), make(0.9), nesterov=True), SGD(float(make(0.1)), number, nesterov=True)),
        (Adagrad(0.1, make(0.9), make(0.9)), Adagrad(0.1, number, number)),
        (Adam(0.1, make(0.9), make(0.9), make(0.9)), Adam(0.1, number, number, number)),
    ]:
        one.apply_gradients([(np.full((5, 2), 0.3, np.float32), w)])
        other.apply_gradients([(np.full((5, 2), 0.3, np.float32), reference)])
        assert w.numpy().tobytes() == reference.numpy().tobytes()
        rule, want, slots = one.rule, np.ones(3, np.float32), {}
        slots = {n: np.full(3, v, np.float32) for n, v in rule.initial_slots().items()}
        got, kept = want.copy(), {n: slot.copy() for n, slot in slots.items()}
        rule.apply(got, kept, np.full(3, 0.3, np.float32), 1, make(0.1))
        rule.apply_in_numpy(want, slots, np.full(3, 0.3, np.float32), 1, make(0.1))
        assert got.tobytes() == want.tobytes()


def test_a_gradient_for_another_number_of_copies():
    devices = ["CPU:0", "CPU:1"]
    with mpistrat.MirroredStrategy(devices) as strategy, strategy.scope():
        v, other = variable(), variable(name="other")
        before = v.numpy()
        ones, none = np.ones((5, 2)), -5 * np.ones((5, 2))
        pairs = [(mpistrat.Mirrored([ones] * 3), v), (mpistrat.Mirrored([none]), other)]
        with pytest.raises(UsageError, match="of 3 values for variable 'w:0' of 2 copies"):
            SGD(1.0).apply_gradients(pairs)
        np.testing.assert_array_equal(v.numpy(), before)


def test_variables_of_another_strategy():
    with mpistrat.OneDeviceStrategy("CPU:0") as one, mpistrat.OneDeviceStrategy("CPU:0") as other:
        with one.scope():
            w = variable()
        with other.scope():
            v = variable()
        gradient = np.ones((5, 2))
        with pytest.raises(UsageError, match="variables of several strategies"):
            SGD().apply_gradients([(gradient, w), (gradient, v)])
        with pytest.raises(ContextError, match="make the variables in the scope"):
            other.run(lambda: SGD().apply_gradients([(gradient, w)]))
