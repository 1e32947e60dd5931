"""A checkpoint holds all that is reachable, by its names, and a restore tells what it left."""

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import mpistrat
from mpistrat import MirroredStrategy, Variable, VariableAggregation, VariableSynchronization
from mpistrat.checkpoint.files import index
from mpistrat.errors import (
    ArgumentTypeError,
    ContextError,
    UsageError,
)
from mpistrat.optimizers import SGD
from mpistrat.train import Checkpoint

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    ml_dtypes.bfloat16,
]


class Model:
    """An object with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("w",)


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


def keys(path):
    return set(index.read(Path(path))["tensors"])


# ---------------------------------------------------------------------------------- round trips


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_dtype_and_shape(tmp_path, dtype, shape, seed):
    dtype = np.dtype(dtype)
    draw = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    value = np.frombuffer(draw, np.uint8)
    value = (value % 2).view(dtype) if dtype.kind == "b" else value.view(dtype)
    value = value.reshape(shape)
    variable, array = Variable(value), value.copy()
    checkpoint = Checkpoint(v=variable, a=array)
    path = checkpoint.write(tmp_path / "one")
    variable.assign(np.zeros_like(value))
    array[...] = 0
    checkpoint.read(path).assert_consumed()
    assert variable.numpy().tobytes() == value.tobytes() == array.tobytes()
    assert variable.dtype == dtype
    assert variable.shape == shape


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.complex_numbers(allow_nan=False),
        st.floats(width=32, allow_nan=False).map(np.float32),
        st.integers(-128, 127).map(np.int8),
    )
)
def test_any_number(tmp_path, number):
    path = Checkpoint(n=number).write(tmp_path / "one")
    again = Checkpoint(n=0)
    again.read(path).assert_consumed()
    assert again.n == number
    assert type(again.n) is type(number)
    assert repr(again.n) == repr(number)  # -0.0, too


def test_arrays_in_any_memory_order(tmp_path):
    value = np.arange(24.0).reshape(2, 3, 4)
    for view in (value.transpose(2, 0, 1), value[:, ::-1], value[1:, :, ::2]):
        expected = view.copy()
        checkpoint = Checkpoint(a=view)
        path = checkpoint.write(tmp_path / "one")
        view[...] = 7
        checkpoint.read(path).assert_consumed()
        same(view, expected)


def test_a_tensor_longer_than_a_share(tmp_path):
    value = np.random.default_rng(0).normal(size=(1000, 400))
    variable = Variable(value)
    path = Checkpoint(v=variable).save(tmp_path / "ckpt")
    variable.assign(np.zeros_like(value))
    Checkpoint(v=variable).restore(path).assert_consumed()
    same(variable, value)


# --------------------------------------------------------------------------------- what is found


def test_names_are_attributes_keys_and_positions(tmp_path):
    w, b, s = Variable(1.0), Variable(2.0), Slotted()
    s.w = Variable(3.0)
    model = Model(layers=[Model(w=w), {"b/1": b}], s=s, name="net", size=5, also=(w, b))
    path = Checkpoint(model=model, step=Variable(0)).save(tmp_path / "ckpt")
    assert keys(path) == {"model/also/0", "model/also/1", "model/s/w", "step", "save_counter"}
    assert keys(Checkpoint(root=model).write(tmp_path / "root")) == {"also/0", "also/1", "s/w"}
    assert keys(Checkpoint(root=[w]).write(tmp_path / "list")) == {"0"}
    assert keys(Checkpoint(root=w).write(tmp_path / "leaf")) == {"root"}
    assert keys(Checkpoint(a={"b/1": b, "~": w}).write(tmp_path / "odd")) == {"a/b~11", "a/~0"}
    assert keys(Checkpoint(__metadata__=w).write(tmp_path / "reserved")) == {"__metadata__"}
    w.assign(0.0)
    Checkpoint(__metadata__=w).read(tmp_path / "reserved").assert_consumed()
    same(w, 1.0)


def test_what_several_names_lead_to_is_found_by_each(tmp_path):
    w = Variable([1.0, 2.0])
    path = Checkpoint(a=Model(w=w), b=[w], c=Checkpoint(w=w)).write(tmp_path / "one")
    assert len(keys(path)) == 1
    for again in ({"a": Model}, {"b": list}, {"c": Checkpoint}):
        ((name, kind),) = again.items()
        other = Variable([0.0, 0.0])
        thing = [other] if kind is list else kind(w=other)
        Checkpoint(**{name: thing}).read(path).assert_consumed()
        same(other, [1.0, 2.0])


def test_cycles(tmp_path):
    a, b = Model(w=Variable(1.0)), Model(w=Variable(2.0))
    a.other, b.other, a.me = b, a, [a]
    loop: list = [a]
    loop.append(loop)
    checkpoint = Checkpoint(a=a, loop=loop)
    path = checkpoint.write(tmp_path / "one")
    a.w.assign(0.0)
    b.w.assign(0.0)
    checkpoint.read(path).assert_consumed()
    assert (float(a.w), float(b.w)) == (1.0, 2.0)


def test_a_chain_deeper_than_the_stack(tmp_path):
    top = end = Model()
    for _ in range(3000):
        end.next = Model()
        end = end.next
    end.w = Variable(1.0)
    path = Checkpoint(top=top).write(tmp_path / "one")
    end.w.assign(0.0)
    Checkpoint(top=top).read(path).assert_consumed()
    same(end.w, 1.0)


def test_numbers_and_arrays_count_where_they_were_given(tmp_path):
    array, model = np.ones(2), Model(w=Variable(1.0), rate=0.5, cache=np.zeros(3), sizes=[1, 2])
    given = {"model": model, "rates": [0.1, {"x": 2}], "array": array, "step": 4}
    path = Checkpoint(**given).write(tmp_path / "one")
    assert keys(path) == {"model/w", "array"}
    model.rate, model.sizes[0], given["rates"][0], given["rates"][1]["x"] = 7, 7, 7, 7
    again = Checkpoint(**given)
    again.step = 0
    again.read(path).assert_consumed()
    assert (model.rate, model.sizes) == (7, [7, 2])
    assert (given["rates"], again.step) == ([0.1, {"x": 2}], 4)


def test_attributes_may_be_set_later(tmp_path):
    checkpoint = Checkpoint()
    checkpoint.w = Variable(3.0)
    assert keys(checkpoint.write(tmp_path / "one")) == {"w"}


def test_a_namespace_and_an_ordered_dict(tmp_path):
    from collections import OrderedDict, defaultdict

    things = SimpleNamespace(w=Variable(1.0)), OrderedDict(w=Variable(2.0)), defaultdict(list)
    things[2]["w"].append(Variable(3.0))
    path = Checkpoint(things=list(things)).write(tmp_path / "one")
    assert keys(path) == {"things/0/w", "things/1/w", "things/2/w/0"}


REFUSED = [("str", "text"), ("NoneType", None), ("builtin_function", repr), ("type", Model)]
REFUSED += [("Generator", np.random.default_rng()), ("function", lambda: 1)]


@pytest.mark.parametrize(("kind", "thing"), REFUSED)
def test_types_of_which_nothing_can_be_saved(kind, thing):
    with pytest.raises(ArgumentTypeError, match=f"nothing of a {kind}"):
        Checkpoint(a=thing)


@pytest.mark.parametrize("name", ["save", "restore", "save_counter", "write"])
def test_names_of_its_own(name):
    with pytest.raises(UsageError, match="member of that name"):
        Checkpoint(**{name: Variable(1.0)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": {(1, 2): Variable(1.0)}}, "no name"),
        ({"a": {Variable(1.0)}}, "no name"),
        ({"a": {1: Variable(1.0), "1": Variable(2.0)}}, "has the name '1'"),
        ({"a": (1, 2)}, "could not be restored"),
        ({"a": {1, 2}}, "is in a set, where it could not be restored"),
        ({"a": [frozenset([1.5])]}, "is in a frozenset"),
        ({"a": np.zeros(2, object)}, "dtype object"),
        ({"a": np.broadcast_to(1.0, 3)}, "read-only"),
        ({"a": np.zeros(2, ">f8" if np.little_endian else "<f8")}, "byte order"),
    ],
)
def test_what_could_not_be_found_again(tmp_path, given, message):
    with pytest.raises(UsageError, match=message):
        Checkpoint(**given).save(tmp_path / "ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prefix", ["", ".", "/", "folder/..", None, 3])
@pytest.mark.parametrize("method", ["save", "write"])
def test_paths_without_a_name(tmp_path, monkeypatch, method, prefix):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(w=Variable(1.0))
    with pytest.raises(UsageError, match=r"file_prefix=.*; expected"):
        getattr(checkpoint, method)(prefix)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_written_to_and_is_no_place_to_save_to(tmp_path):
    checkpoint = Checkpoint(w=Variable(1.0))
    folder = f"{tmp_path}/folder/"
    assert checkpoint.write(folder) == folder
    checkpoint.read(folder).assert_consumed()
    with pytest.raises(UsageError, match=r"expected one, as in '.*/folder/ckpt'"):
        checkpoint.save(folder)


def test_an_object_of_which_nothing_is_saved_is_told_once(tmp_path, caplog):
    filled = {"filled": Model(w=Variable(1.0)), "empty": [], "late": SGD(0.1)}
    checkpoint = Checkpoint(model=Model(epoch=7), **filled)
    with caplog.at_level("WARNING"):
        for _ in range(2):
            checkpoint.save(tmp_path / "ckpt")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("Checkpoint(model=...): nothing of it is saved.")


def test_two_names_for_one_in_root_and_keywords(tmp_path):
    w = Variable(1.0)
    Checkpoint(root=Model(w=w), w=w).write(tmp_path / "same")
    with pytest.raises(UsageError, match="has the name 'w'"):
        Checkpoint(root=Model(w=w), w=Variable(2.0)).write(tmp_path / "other")


# --------------------------------------------------------------------------------------- states


class Optimizer:
    """An object that says itself what is saved."""

    def __init__(self, state):
        self.state = state
        self.hidden = Variable(9.0)

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_states(tmp_path):
    slots = {"a/b": np.arange(3.0), 3: Variable(np.ones(2, ml_dtypes.bfloat16))}
    state = {"slots": slots, "step": 7, "name": "sgd", "rate": None, "history": [1.5, (2, True)]}
    path = Checkpoint(o=Optimizer(state)).write(tmp_path / "one")
    assert keys(path) == {"o/state:slots/a~1b", "o/state:slots/[3]"}
    again = Optimizer({"step": 0})
    Checkpoint(o=again).read(path).assert_consumed()
    same(again.state["slots"]["a/b"], np.arange(3.0))
    same(again.state["slots"][3], np.ones(2, ml_dtypes.bfloat16))
    del again.state["slots"], state["slots"]
    assert again.state == state
    assert isinstance(again.state["history"][1], tuple)


@pytest.mark.parametrize("state", [{"a": object()}, {(1,): 2}, {"a": np.zeros(1, "S3")}])
def test_states_that_cannot_be_saved(tmp_path, state):
    with pytest.raises(ArgumentTypeError):
        Checkpoint(o=Optimizer(state)).write(tmp_path / "one")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------- counter


def test_save_counter(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    assert int(checkpoint.save_counter) == 0
    assert checkpoint.save(f"{tmp_path}/ckpt") == f"{tmp_path}/ckpt-1"
    assert checkpoint.save(tmp_path / "ckpt") == f"{tmp_path}/ckpt-2"
    again = Checkpoint(v=Variable(1.0))
    again.restore(tmp_path / "ckpt-2").assert_consumed()
    assert int(again.save_counter) == 2
    assert again.save(tmp_path / "ckpt") == f"{tmp_path}/ckpt-3"
    written = again.write(tmp_path / "w")
    assert int(again.save_counter) == 3
    Checkpoint(v=Variable(1.0)).restore(written).assert_consumed()
    Checkpoint(v=Variable(1.0)).read(written).assert_consumed()


def test_paths_are_as_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint(v=Variable(1.0))
    assert checkpoint.save("ckpt") == "ckpt-1"
    assert checkpoint.save("a/b/ckpt") == "a/b/ckpt-2"
    assert mpistrat.train.latest_checkpoint("a/b") == "a/b/ckpt-2"
    checkpoint.restore("ckpt-1").assert_consumed()


# ------------------------------------------------------------------------------------ strategies


def test_variables_of_a_strategy(tmp_path):
    on_read = VariableSynchronization.ON_READ
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        w = Variable([1.0, 2.0])
        total = Variable(3.0, synchronization=on_read, aggregation=VariableAggregation.SUM)
        mean = Variable(4, synchronization=on_read, aggregation=VariableAggregation.MEAN)
        checkpoint = Checkpoint(w=w, total=total, mean=mean)
        path = checkpoint.save(tmp_path / "ckpt")
        w.assign([0.0, 0.0])
        total.assign(0.0)
        mean.assign(0)
        checkpoint.restore(path).assert_consumed()
        assert [copy.numpy().tolist() for copy in w.values] == [[1.0, 2.0]] * 2
        assert [float(copy) for copy in total.values] == [3.0, 3.0]
        assert (float(total), int(mean)) == (6.0, 4)

        with pytest.raises(ContextError, match="inside a replica function"):
            strategy.run(lambda: checkpoint.save(tmp_path / "ckpt"))
    plain = Variable([0.0, 0.0]), Variable(0.0), Variable(0)
    Checkpoint(w=plain[0], total=plain[1], mean=plain[2]).restore(path).assert_consumed()
    assert (plain[0].numpy().tolist(), float(plain[1]), int(plain[2])) == ([1.0, 2.0], 6.0, 4)


def test_a_copy_stands_for_its_variable(tmp_path):
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        w = Variable(1.0)
        path = Checkpoint(copy=w.values[1]).write(tmp_path / "one")
        w.assign(0.0)
        Checkpoint(copy=w.values[0]).read(path).assert_consumed()
        assert [float(copy) for copy in w.values] == [1.0, 1.0]
