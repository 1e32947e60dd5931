"""The same calls of TensorFlow's ShardedVariable and of ours: equal values, or errors of a kind.

What is otherwise here: `sparse_read` has rows in the order of the indices, not by parts; scatters
do not need equal parts; values that are too long are not assigned in part, values of rows that are
too long not scattered in part; an index after None counts for the whole, not for each part, and a
slice may begin beyond the rows; what NumPy takes for no index is an IndexError.
"""

import itertools

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402 - TensorFlow may be missing
from mpistrat.nn import embedding_lookup  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

Theirs = tf.__internal__.distribute.ShardedVariable
LAYOUTS = [(1, 1), (2, 2), (13, 5), (13, 1), (12, 4), (40, 7)]
every_layout = pytest.mark.parametrize(("rows", "parts"), LAYOUTS)
DTYPES = ["int32", "int64", "float16", "float32", "float64", "complex64"]


def pair(rows, parts, dtype="float32", width=(2,)):
    """Return TensorFlow's and ours, in the same parts."""
    value = np.random.default_rng(rows).integers(1, 9, (rows, *width)).astype(dtype)
    pieces = np.array_split(value, parts)
    names = [f"w/part_{i}" for i in range(parts)]
    named = list(zip(pieces, names, strict=True))
    return (
        Theirs([tf.Variable(piece, name=name) for piece, name in named], name="w"),
        mpistrat.ShardedVariable([mpistrat.Variable(p, name=name) for p, name in named], name="w"),
    )


def outcome(call, *arguments):
    """Return what a call gives, as an array, or the kind of its error."""
    try:
        result = call(*arguments)
    except (tf.errors.InvalidArgumentError, TypeError, ValueError, IndexError) as error:
        kinds = (IndexError, TypeError)
        return next((kind for kind in kinds if isinstance(error, kind)), ValueError)
    return np.asarray(tf.convert_to_tensor(result)) if isinstance(result, Theirs) else result


def same(theirs, ours):
    if isinstance(theirs, type) or isinstance(ours, type):
        assert theirs is ours
        return
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert np.asarray(ours).shape == np.asarray(theirs).shape


def slices(values, rows):
    """Return the same rows for both."""
    one = tf.IndexedSlices(tf.constant(values), tf.constant(rows))
    return one, mpistrat.IndexedSlices(values, rows)


@every_layout
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_it_is(rows, parts, dtype):
    theirs, ours = pair(rows, parts, dtype)
    assert tuple(theirs.shape) == ours.shape
    assert theirs.dtype.as_numpy_dtype == ours.dtype
    assert theirs.name == ours.name
    assert theirs.is_sharded_variable is ours.is_sharded_variable is True
    assert [v.name for v in theirs] == [v.name for v in ours] == [v.name for v in ours.variables]
    assert [tuple(v.shape) for v in theirs.variables] == [v.shape for v in ours.variables]
    same(theirs.numpy(), ours.numpy())
    same(tf.convert_to_tensor(theirs), np.asarray(ours))


ENDS = [None, 0, 1, 5, 7, 12, 13, 20, -1, -4, -13]
STEPS = [None, 1, 2, 5, 40, -1, -2, -3, -40]


@takes_long()
@pytest.mark.parametrize(("rows", "parts"), [(13, 5), (12, 4), (3, 3), (5, 1)])
def test_slices(rows, parts):
    theirs, ours = pair(rows, parts)
    for start, stop, step in itertools.product(ENDS, ENDS, STEPS):
        is_before = any(end is not None and end < -rows for end in (start, stop))
        is_behind = (step or 1) < 0 and start is not None and start >= rows
        if not is_before and not is_behind:
            key = slice(start, stop, step)
            same(theirs[key], ours[key])


KEYS = [
    *(0, 3, -1, -13, 12, 13, -14, np.int32(4)),
    *((0, 1), (-1, -1), (3, slice(None)), (5, None), (4, Ellipsis), (7, Ellipsis, 0)),
    *(Ellipsis, (Ellipsis, 0), (Ellipsis, slice(1)), None),
    *((slice(2, 9), 1), (slice(9, 2, -2), slice(None, None, -1)), (slice(2, 4), None)),
    *((slice(1, 3), Ellipsis, 0), slice(None, None, 0), slice(20, 30)),
    np.arange(13) % 3 == 0,
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("parts", [1, 4, 13])
def test_indices(key, parts):
    theirs, ours = pair(13, parts)
    same(outcome(theirs.__getitem__, key), outcome(ours.__getitem__, key))


def test_there_is_no_length():
    for w in pair(4, 2):
        with pytest.raises(TypeError):
            len(w)


@every_layout
@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_assignments(rows, parts, method):
    theirs, ours = pair(rows, parts)
    value = np.random.default_rng(1).normal(size=(rows, 2)).astype(np.float32)
    for w in (theirs, ours):
        assert getattr(w, method)(value) is w
    same(theirs.numpy(), ours.numpy())
    for wrong in (value[:-1], value[0], np.float32(1), "text"):
        same(outcome(getattr(theirs, method), wrong), outcome(getattr(ours, method), wrong))
    # TensorFlow has changed the parts up to the one that failed; here nothing has.


METHODS = ["add", "sub", "mul", "max", "min", "update"]
SCATTERS = list(itertools.product([*METHODS, "div"], ["float32", "float64"]))
SCATTERS += [(method, "int32") for method in METHODS]


@takes_long()
@every_layout
@pytest.mark.parametrize(("method", "dtype"), SCATTERS)
def test_scatters(rows, parts, method, dtype):
    theirs, ours = pair(rows, parts, dtype)
    random = np.random.default_rng(2)
    for count in (0, 1, rows, 2 * rows):
        where = random.integers(0, rows, count)
        if method == "update":  # which of two values counts is not said
            where = np.unique(where)
        values = random.integers(1, 5, (where.size, 2)).astype(dtype)
        for w, some in zip((theirs, ours), slices(values, where), strict=True):
            assert getattr(w, f"scatter_{method}")(some) is w
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("row", [-1, 13])
def test_scatters_to_no_rows(row):
    theirs, ours = pair(13, 5)
    both = slices(np.ones((1, 2), np.float32), [row])
    for w, some in zip((theirs, ours), both, strict=True):
        same(ValueError, outcome(w.scatter_add, some))


@every_layout
@pytest.mark.parametrize("shape", [(), (0,), (1,), (30,), (3, 4), (2, 0)])
def test_lookups(rows, parts, shape):
    theirs, ours = pair(rows, parts)
    ids = np.random.default_rng(3).integers(0, rows, shape).astype(np.int64)
    for how in ({}, {"max_norm": 4.0}):
        expected = tf.nn.embedding_lookup(theirs, ids, **how).numpy()
        for table in (ours, ours.variables, ours.numpy()):
            found = embedding_lookup(table, ids, **how)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("ids", [[5], [-1], [0.5]])
def test_lookups_of_no_rows(ids):
    theirs, ours = pair(5, 2)
    kinds = [
        outcome(call, table, ids)
        for call, table in ((tf.nn.embedding_lookup, theirs), (embedding_lookup, ours))
    ]
    assert all(isinstance(kind, type) for kind in kinds)


def test_reads_of_rows_have_the_same_rows():
    theirs, ours = pair(13, 5)
    ids = np.array([12, 0, 5, 5])
    by_part = ours.sparse_read(np.sort(ids))
    same(theirs.sparse_read(tf.constant(ids)).numpy(), by_part)


OPERATORS = {
    "+": lambda w, x: (w + x, x + w),
    "-": lambda w, x: (w - x, x - w),
    "*": lambda w, x: (w * x, x * w),
    "/": lambda w, x: (w / x, x / w),
    "//": lambda w, x: (w // x, x // w),
    "%": lambda w, x: (w % x, x % w),
    "**": lambda w, x: (w**2, 2**w),
    "neg": lambda w, x: (-w, abs(-w)),
    "@": lambda w, x: (w @ np.ones((2, 3), "float32"), w @ np.eye(2, dtype="float32")),
    "<": lambda w, x: (w < x, w <= x, w > x, w >= x),
    "==": lambda w, x: (w == x, w != x),
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("parts", [1, 5])
def test_operators(operator, parts):
    theirs, ours = pair(13, parts)
    other = np.random.default_rng(4).integers(1, 5, (13, 2)).astype(np.float32)
    results = zip(operator(theirs, tf.constant(other)), operator(ours, other), strict=True)
    for one, two in results:
        np.testing.assert_allclose(two, one.numpy(), rtol=1e-6)


MISTAKES = [
    lambda v: [],
    lambda v: None,
    lambda v: 3,
    lambda v: [1.0],
    lambda v: v([1.0]),
    lambda v: [v([1.0]), v([1])],
    lambda v: [v([[1.0]]), v([1.0])],
    lambda v: [v([[1.0]]), v([[1.0, 2.0]])],
]


@pytest.mark.parametrize("made", MISTAKES)
def test_what_are_no_parts(made):
    theirs = outcome(Theirs, made(tf.Variable))
    ours = outcome(mpistrat.ShardedVariable, made(mpistrat.Variable))
    assert theirs is ours
    assert theirs in (TypeError, ValueError)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 3), (3, 1)])
def test_b91_b93_checkpoints_onto_other_numbers_of_parts(before, after, tmp_path):
    results = []
    for side, (first, second) in enumerate(zip(pair(12, before), pair(12, after), strict=True)):
        module = (tf.train, mpistrat.train)[side]
        second.assign(np.zeros((12, 2), np.float32))
        path = module.Checkpoint(w=first).write(str(tmp_path / f"{side}"))
        module.Checkpoint(w=second).read(path).assert_consumed()
        variable = (tf.Variable, mpistrat.Variable)[side](np.zeros((12, 2), np.float32))
        module.Checkpoint(w=variable).read(path).assert_consumed()
        results += [first.numpy(), second.numpy(), variable.numpy()]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
