"""Partitioners with the same arguments under TensorFlow and here: the same parts, or an error.

What is otherwise: no shards, or an axis that is not there, are a ValueError here at once; and a
variable without elements, which TensorFlow's MaxSizePartitioner cannot divide, is one part.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from mpistrat.experimental import partitioners as ours  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

theirs = tf.distribute.experimental.partitioners

SHAPES = [
    *((1,), (2,), (7,), (10,), (64,), (1000,), (1 << 20,)),
    *((1, 1), (6, 1), (10, 3), (3, 10), (999, 7), (1 << 14, 64), (5, 0)),
    *((2, 3, 4), (100, 1, 1), (31, 17, 3), (4, 4, 4, 4)),
]
DTYPES = ["bool", "int8", "uint16", "float16", "int32", "float32", "int64", "complex128", str]
DTYPES.append(ml_dtypes.bfloat16)
SIZES = [1, 3, 4, 16, 100, 1023, 1024, 1 << 18, 1 << 30]
LIMITS = [1, 2, 3, 7, 1000]

MAKERS = {
    "fixed": [("FixedShardsPartitioner", {"num_shards": count}) for count in (*LIMITS, 1 << 30)],
    "min": [
        ("MinSizePartitioner", {"min_shard_bytes": size, "max_shards": limit})
        for size, limit in itertools.product(SIZES, LIMITS)
    ],
    "max": [
        ("MaxSizePartitioner", {"max_shard_bytes": size, "max_shards": limit})
        for size, limit in itertools.product(SIZES, [*LIMITS, None, 0])
    ],
    "strings": [
        ("MinSizePartitioner", {"max_shards": 9, "min_shard_bytes": 64, "bytes_per_string": 5}),
        ("MaxSizePartitioner", {"max_shard_bytes": 64, "bytes_per_string": 5}),
    ],
    "defaults": [("MinSizePartitioner", {}), ("MaxSizePartitioner", {"max_shard_bytes": 1000})],
}


def tf_dtype(dtype):
    return tf.string if dtype is str else tf.as_dtype(dtype)


@takes_long()
@pytest.mark.parametrize("kind", MAKERS)
def test_parts(kind):
    compared = 0
    for name, how in MAKERS[kind]:
        one, other = getattr(theirs, name)(**how), getattr(ours, name)(**how)
        for shape, dtype in itertools.product(SHAPES, DTYPES):
            if name == "MaxSizePartitioner" and 0 in shape:
                continue
            for axis in range(len(shape)):
                expected = one(tf.TensorShape(shape), tf_dtype(dtype), axis=axis)
                assert other(shape, dtype, axis=axis) == expected, (name, how, shape, dtype, axis)
                compared += 1
    assert compared > 500


def test_those_of_tensorflow_may_be_asked_by_its_own_types():
    partitioner = ours.MaxSizePartitioner(40)
    assert partitioner(tf.TensorShape([10, 3]), tf.float32) == [4, 1]
    assert partitioner(tf.TensorShape([10, 3]), tf.bfloat16) == [2, 1]
    assert ours.MinSizePartitioner(32, 9)(tf.TensorShape([10]), tf.string) == [5]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("MinSizePartitioner", {"min_shard_bytes": 0}),
        ("MinSizePartitioner", {"max_shards": 0}),
        ("MinSizePartitioner", {"max_shards": -3}),
        ("MinSizePartitioner", {"bytes_per_string": 0}),
        ("MaxSizePartitioner", {"max_shard_bytes": 0}),
        ("MaxSizePartitioner", {"max_shard_bytes": 8, "max_shards": -1}),
        ("MaxSizePartitioner", {"max_shard_bytes": 8, "bytes_per_string": -1}),
    ],
)
def test_errors(name, how):
    for side in (theirs, ours):
        with pytest.raises(ValueError, match=r"positive|expected at least 1"):
            getattr(side, name)(**how)


def test_an_axis_that_is_not_there():
    with pytest.raises(ValueError, match="axis"):
        theirs.MinSizePartitioner()(tf.TensorShape([3]), tf.float32, axis=1)
    with pytest.raises(ValueError, match="axis=1"):
        ours.MinSizePartitioner()((3,), np.float32, axis=1)
