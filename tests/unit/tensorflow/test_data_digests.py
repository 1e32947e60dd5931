"""Digests of arrays tell other arrays and other orders apart, and ignore rounding."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from mpistrat.tensorflow.data.digests import digests_of  # noqa: E402 - TensorFlow may be missing

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "floats": RANDOM.normal(size=(100, 7)).astype("float32"),
    "many floats": RANDOM.normal(size=(20000, 17)),
    "long rows": RANDOM.normal(size=(200, 5000)).astype("float16"),
    "a vector": np.arange(48.0),
    "numbers far from zero": 1.6e9 + 10.0 * RANDOM.normal(size=200),
    "integers": np.arange(60).reshape(20, 3),
    "many integers": RANDOM.integers(0, 255, size=(3000, 28, 28)).astype("uint8"),
    "complex": RANDOM.normal(size=40) + 1j,
    "strings": np.array([f"row {i}" for i in range(30)]),
    "objects": np.array([b"row %d" % i for i in range(30)], object),
    "no numbers": np.array([np.nan, np.inf, *range(20)]),
}


def is_close(one, other):
    pairs = zip(digests_of(one), digests_of(other), strict=True)
    return all(a.is_close(b) for a, b in pairs)


@pytest.mark.parametrize("name", ARRAYS)
def test_equal_arrays_have_equal_notes(name):
    array = ARRAYS[name]
    assert is_close(array, array.copy())
    if array.dtype.kind == "f":
        assert is_close(array, array * (1 + {2: 1e-7, 4: 1e-7, 8: 1e-13}[array.itemsize]))
    assert is_close(np.asfortranarray(array), array)


@pytest.mark.parametrize("name", ARRAYS)
def test_another_order_has_other_notes(name):
    array = ARRAYS[name]
    assert not is_close(array, array[::-1])
    for seed in range(5):
        assert not is_close(array, np.random.default_rng(seed).permutation(array))
    assert not is_close(array, array[1:])


def test_two_rows_that_change_places_in_a_short_array():
    array = ARRAYS["floats"]
    other = array.copy()
    other[[20, 21]] = other[[21, 20]]
    assert not is_close(array, other)


def test_tensors_and_composites():
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    assert is_close(ragged, ragged + 1e-7)
    assert not is_close(ragged, tf.ragged.constant([[1.0], [2.0, 3.0]]))
    assert is_close(tf.constant(ARRAYS["floats"]), ARRAYS["floats"])
    assert not is_close(ARRAYS["floats"], ARRAYS["floats"].astype("float64"))
    assert digests_of(np.empty((0, 3)))[0].is_close(digests_of(np.empty((0, 3)))[0])
