"""Variables in parts are trained, saved and restored as one, whatever the number of parts."""

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mpistrat
from mpistrat import IndexedSlices, MirroredStrategy, PerReplica, ShardedVariable, Variable
from mpistrat.checkpoint.files import index
from mpistrat.errors import UsageError
from mpistrat.optimizers import SGD, Adagrad, Adam
from mpistrat.train import Checkpoint

MAKERS = {
    "sgd": lambda: SGD(0.1),
    "momentum": lambda: SGD(0.1, 0.9),
    "lazy": lambda: SGD(0.1, 0.9, lazy=True),
    "adagrad": lambda: Adagrad(0.1),
    "amsgrad": lambda: Adam(0.1, amsgrad=True),
}
every_optimizer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
SHAPE = (11, 3)


def table(parts=4, value=None, name="w"):
    """Return a variable in so many parts, or a plain one for no parts."""
    value = np.random.default_rng(1).normal(size=SHAPE) if value is None else value
    if not parts:
        return Variable(value, name=name)
    rows = np.array_split(value, parts)
    return ShardedVariable(
        [Variable(r, name=f"{name}/part_{i}") for i, r in enumerate(rows)], name
    )


def gradients(count, seed=2):
    """Return gradients of all rows and of some, in turn."""
    random = np.random.default_rng(seed)
    for number in range(count):
        rows = random.integers(0, SHAPE[0], 6)
        values = random.normal(size=(6, SHAPE[1]))
        dense = random.normal(size=SHAPE)
        yield dense if number % 2 else IndexedSlices(values, rows, SHAPE)


def trained(optimizer, variable, count=6):
    for gradient in gradients(count):
        optimizer.apply_gradients([(gradient, variable)])
    return variable.numpy()


# ---------------------------------------------------------------------------------------- training


@every_optimizer
@pytest.mark.parametrize("parts", [1, 2, 4, 11])
def test_b92_gradients_of_the_whole_update_all_parts(make, parts):
    np.testing.assert_array_equal(trained(make(), table(parts)), trained(make(), table(0)))


@every_optimizer
def test_b92_gradients_of_the_parts_do_the_same(make):
    whole, in_parts, optimizer = table(4), table(4), make()
    expected = trained(make(), whole)
    for gradient in gradients(6):
        optimizer.apply_gradients(zip(in_parts.split(gradient), in_parts.variables, strict=True))
    np.testing.assert_array_equal(in_parts.numpy(), expected)
    assert optimizer.iterations == 6


def test_a_part_without_a_gradient_stays():
    w, optimizer = table(3, np.zeros((3, 1))), SGD(1.0, 0.5)
    for gradient in (None, np.ones((1, 1))):
        pairs = [(np.ones((1, 1)), w.variables[0]), (gradient, w.variables[2])]
        optimizer.apply_gradients(pairs)
    assert w.numpy().ravel().tolist() == [-2.5, 0.0, -1.0]


def test_what_is_kept_is_in_as_many_parts():
    w, optimizer = table(4), Adam(0.1)
    optimizer.build([*w.variables, w])
    iteration, momentum, velocity = optimizer.variables
    assert int(iteration) == 0
    for kept, name in ((momentum, "momentum"), (velocity, "velocity")):
        assert isinstance(kept, ShardedVariable)
        assert kept.name == f"w/{name}"
        assert [part.shape for part in kept] == [part.shape for part in w]
        assert [part.name for part in kept] == [f"w/part_{i}/{name}:0" for i in range(4)]


def test_on_replicas():
    expected = trained(SGD(0.1, 0.9), table(0))
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            w, optimizer = table(3), SGD(0.1, 0.9)

        def step(gradient):
            half = gradient
            if isinstance(gradient, IndexedSlices):
                mine = slice(mpistrat.get_replica_context().replica_id_in_sync_group, None, 2)
                half = IndexedSlices(gradient.values[mine], gradient.indices[mine], SHAPE)
            else:
                half = gradient / 2
            optimizer.apply_gradients([(half, w)])

        for gradient in gradients(6):
            strategy.run(step, args=(gradient,))
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)
        for copies in zip(*(part.values for part in w), strict=True):
            same = np.concatenate([copy.numpy() for copy in copies])
            np.testing.assert_array_equal(same, w.numpy())


def test_outside_of_run_with_a_gradient_for_each_copy():
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        w = table(2, np.zeros((3, 1)))
        rows = IndexedSlices(np.ones((1, 1)), [2])
        for pair in ([np.ones((3, 1))] * 2, [rows] * 2):
            SGD(1.0).apply_gradients([(PerReplica(pair), w)])
        for copy in range(2):
            copies = [part.values[copy].numpy() for part in w]
            assert np.concatenate(copies).ravel().tolist() == [-1.0, -1.0, -2.0]


@pytest.mark.parametrize(
    "gradient",
    [
        np.ones((11, 2)),
        np.ones((4, 3)),
        IndexedSlices(np.ones((1, 3)), [11]),
        IndexedSlices(np.ones((1, 2)), [0]),
    ],
)
def test_nothing_changes_if_a_gradient_does_not_fit(gradient):
    w = table(4)
    with pytest.raises(UsageError):
        SGD(1.0).apply_gradients([(np.ones(SHAPE), w), (gradient, w)])
    np.testing.assert_array_equal(w.numpy(), table(0).numpy())


# ------------------------------------------------------------------------------------- checkpoints


def test_b91_saved_as_one_variable(tmp_path):
    path = Checkpoint(w=table(4)).write(tmp_path / "one")
    assert set(index.read(Path(path))["tensors"]) == {"w"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    before=st.integers(0, 6),
    after=st.integers(0, 6),
    rows=st.integers(0, 9),
    dtype=st.sampled_from(["bool", "int8", "float32", "complex64", ml_dtypes.bfloat16]),
)
def test_b93_restored_onto_any_number_of_parts(tmp_path, before, after, rows, dtype):
    value = np.random.default_rng(rows).integers(0, 9, (rows, 2)).astype(dtype)
    path = Checkpoint(w=table(before, value)).write(tmp_path / f"{before}")
    again = table(after, np.zeros_like(value))
    Checkpoint(w=again).read(path).assert_consumed()
    np.testing.assert_array_equal(again.numpy(), value, strict=True)


def test_another_shape_is_refused(tmp_path):
    path = Checkpoint(w=table(4)).write(tmp_path / "one")
    again = table(3, np.zeros((12, 3)))
    with pytest.raises(UsageError, match=r"has shape \(12, 3\)"):
        Checkpoint(w=again).read(path)
    assert not again.numpy().any()


@pytest.mark.parametrize("parts", [0, 3, 5])
def test_the_parts_alone_lead_to_the_whole(tmp_path, parts):
    w = table(4)
    model = SimpleNamespace(weights=w.variables, w=w)
    path = Checkpoint(model=model).write(tmp_path / "one")
    assert len(index.read(Path(path))["tensors"]) == 1
    again = table(parts, np.zeros(SHAPE))
    both = SimpleNamespace(weights=again.variables if parts else [again], w=again)
    Checkpoint(model=both).read(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(again.numpy(), w.numpy())


@every_optimizer
@pytest.mark.parametrize(("before", "after"), [(4, 2), (0, 3), (3, 0), (1, 11)])
def test_b93_training_goes_on_with_another_number_of_parts(make, tmp_path, before, after):
    w, optimizer = table(before), make()
    trained(optimizer, w, 4)
    path = Checkpoint(w=w, optimizer=optimizer).write(tmp_path / "one")
    again, other = table(after, np.zeros(SHAPE)), make()
    other.build([again])
    Checkpoint(w=again, optimizer=other).read(path).assert_consumed()
    np.testing.assert_array_equal(trained(other, again, 5), trained(optimizer, w, 5))
    assert other.iterations == 9


def test_in_the_state_of_an_object(tmp_path):
    class Own:
        def __init__(self, value):
            self.value = value

        def state_dict(self):
            return {"w": self.value}

        def load_state_dict(self, state):
            self.value.assign(state["w"])

    path = Checkpoint(own=Own(table(4))).write(tmp_path / "one")
    again = table(2, np.zeros(SHAPE))
    Checkpoint(own=Own(again)).read(path).assert_consumed()
    np.testing.assert_array_equal(again.numpy(), table(0).numpy())
