"""Objects are pickled by Python itself where all ranks have their classes, else by cloudpickle."""

import pickle
import sys
import threading
import types

import cloudpickle
import ml_dtypes
import numpy as np
import pytest

from mpistrat.collectives.pickling import pack, pickled
from mpistrat.errors import ArgumentTypeError, PeerLostError


@pytest.fixture
def no_cloudpickle(monkeypatch):
    monkeypatch.setattr(cloudpickle, "dumps", lambda value: pytest.fail("cloudpickle was asked"))


@pytest.mark.usefixtures("no_cloudpickle")
@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, "text", b"bytes", None, True, 1j, {3}, frozenset({4})]},
        ((np.arange(6.0).reshape(2, 3), np.float32(2), np.dtype("int8")), {}),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array([("a", 1)], [("name", "U3"), ("number", "i4")]),
    ],
    ids=["plain", "arguments", "strided", "bfloat16", "records"],
)
def test_plain_data_and_arrays_need_no_cloudpickle(value):
    np.testing.assert_equal(pickle.loads(pickled(value)), value)


@pytest.mark.usefixtures("no_cloudpickle")
def test_objects_of_this_package_need_no_cloudpickle():
    error = pickle.loads(pickled(PeerLostError("rank 3 has ended")))
    assert (type(error), str(error)) == (PeerLostError, "rank 3 has ended")


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: np.array([x, None])])
def test_what_another_rank_cannot_import_travels_with_its_code(wrap, monkeypatch):
    module = types.ModuleType("of_one_rank")
    exec("class Thing:\n    value = 3\ndef double(x):\n    return 2 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, "of_one_rank", module)
    cloudpickle.register_pickle_by_value(module)
    try:
        data = pickled(wrap({"thing": module.Thing(), "double": module.double}))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "of_one_rank")
    got = pickle.loads(data)[0]
    assert (got["thing"].value, got["double"](4)) == (3, 8)


def test_a_function_that_says_it_is_numpys_travels_with_its_code():
    def own(x):
        return x + 1

    own.__module__, own.__qualname__ = "numpy", "sum"
    assert pickle.loads(pickled([own]))[0](1) == 2


def test_what_cannot_travel_is_told():
    with pytest.raises(ArgumentTypeError, match=r"a list cannot be pickled: .*lock"):
        pack([threading.Lock()])
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentTypeError, match="recursion"):
        pack(deep)
