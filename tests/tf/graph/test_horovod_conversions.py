"""Conversions for Horovod and back, its settings, and its timeline, tried without Horovod."""

import json

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from mpistrat.collectives.health import timeline
from mpistrat.tables.reduction_ops import DTYPES, combine
from mpistrat.tensorflow.graph.horovod import dtypes
from mpistrat.tensorflow.graph.horovod.array_reductions import plan
from mpistrat.tensorflow.graph.horovod.horovod_timeline import events_of
from mpistrat.tensorflow.graph.horovod.tuning import Tuning

CARRIED = {"uint8", "int8", "int32", "int64", "float16", "float32", "float64"}
OPS = {"Sum": np.add, "Product": np.multiply, "Min": np.minimum, "Max": np.maximum}


def extremes(dtype):
    """Return two arrays of a dtype, with its least and its greatest numbers."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.array([[0, 0, 1, 1], [0, 1, 0, 1]], dtype)
    if dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([[least, most, most, 7], [most, most, 2, 3]], dtype)
    rows = np.array([[1.5, -2, 0, 4], [2.5, 3, -1, 8]], dtype)
    return rows * (1 + 2j) if dtype.kind == "c" else rows


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_reductions_of_arrays_are_numpys(dtype, op):
    rows = extremes(dtype)
    if rows.dtype.kind == "c" and op in ("min", "max"):
        pytest.skip("complex numbers have no order")
    how = plan(op, rows[0])
    if how is None:
        assert (rows.dtype.kind, op) == ("c", "prod")
        return
    first, second = map(how.there, rows)
    assert first.dtype.name in CARRIED
    with np.errstate(over="ignore"):
        found = how.back(OPS[how.op](first, second))
        np.testing.assert_array_equal(found, combine(op, rows))
    assert found.dtype == rows.dtype


@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_what_has_no_such_reduction_is_gathered(op):
    assert plan(op, np.arange(3)) is None


@pytest.mark.parametrize("dtype", [*sorted(DTYPES), "float16", "bfloat16"])
def test_sums_of_tensors_keep_their_value_and_dtype(dtype):
    own = tf.as_dtype(dtype)
    values = tf.constant([0, 1, 3, 5])
    tensor = tf.cast(values, own)
    how = dtypes.reduced(own)
    assert how is not None
    sent = tensor if how.there is None else how.there(tensor)
    assert sent.dtype.name in CARRIED
    total = tf.maximum(sent, sent) if how.is_logical else sent + sent
    found = total if how.back is None else how.back(total)
    assert found.dtype == own
    np.testing.assert_array_equal(found, tf.cast(2 * values, own))


@pytest.mark.parametrize("dtype", [*sorted(DTYPES), "float16", "bfloat16"])
def test_moved_tensors_keep_their_bits(dtype):
    tensor = tf.cast(tf.constant([0, 1, 3, 5]), tf.as_dtype(dtype))
    how = dtypes.moved(tensor.dtype)
    assert how is not None
    sent = tensor if how.there is None else how.there(tensor)
    np.testing.assert_array_equal(sent if how.back is None else how.back(sent), tensor)


def test_strings_are_carried_by_the_own_backend():
    assert dtypes.moved(tf.string) is dtypes.reduced(tf.string) is None


def test_settings_are_variables_that_horovod_reads():
    assert Tuning().variables() == {}
    assert Tuning(1 << 20, 0.5).variables() == {
        "HOROVOD_FUSION_THRESHOLD": str(1 << 20),
        "HOROVOD_CYCLE_TIME": "0.5",
    }


def test_a_timeline_of_horovod_becomes_part_of_ours():
    start_us = timeline.EPOCH_NS // 1000 + 5_000_000
    events = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {"start_time_since_epoch_in_micros": start_us},
        },
        {"name": "process_name", "ph": "M", "pid": 3, "args": {"name": "a tensor"}},
        {"name": "MPI_ALLREDUCE", "ph": "B", "pid": 3, "ts": 40},
    ]
    unfinished = json.dumps(events)[:-1] + ",\n"
    found = events_of(unfinished)
    (phase,) = (event for event in found if "ts" in event)
    assert (phase["ts"], phase["tid"]) == (5_000_040, 3)
    names = {event.get("tid"): event["args"]["name"] for event in found if "ts" not in event}
    assert names == {None: "Horovod", 3: "a tensor"}
    with pytest.raises(ValueError, match="when it began"):
        events_of("[]")
