"""Combining values without a strategy, sharing ranks that are threads, and the options."""

import math
import time
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest

from mpistrat import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    NcclAllReduce,
    PerReplica,
    ReduceOp,
    ReductionToOneDevice,
    Variable,
)
from mpistrat.errors import CommunicationError
from mpistrat.experimental import CommunicationImplementation, CommunicationOptions
from mpistrat.strategy.reduction.cross_device_ops import CollectiveAllReduce
from mpistrat.testing.strategies.cross_device_ops import KINDS, OneByOne
from mpistrat.testing.threads import run_ranks

OWN = KINDS[:-1]


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


# ------------------------------------------------------------------- attached to no strategy


@pytest.mark.parametrize("kind", KINDS)
def test_unattached_combines_the_values_of_one_rank(kind):
    rows = [np.arange(3.0), np.ones(3), np.full(3, 4.0)]
    value = PerReplica(rows)
    same(kind().reduce(ReduceOp.SUM, value, None), np.array([5.0, 6.0, 7.0]))
    mean = kind().reduce("MEAN", value, value)
    assert len(mean.values) == 3
    for one in mean.values:
        np.testing.assert_allclose(one, np.sum(rows, 0) / 3, rtol=1e-15)
        np.add(one, 1.0, out=one)  # would show in the next if they shared memory
    same(rows[0], np.arange(3.0))


@pytest.mark.parametrize("kind", KINDS)
def test_unattached_takes_a_bare_value_as_the_only_one(kind):
    mine = np.ones(2)
    total = kind().reduce("SUM", mine, None)
    same(total, np.ones(2))
    total.values[0][:] = 9.0
    same(mine, np.ones(2))
    same(kind().reduce("MEAN", 2, None), np.float64(2))


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize(("dtype", "big"), [(np.float16, 2048), (ml_dtypes.bfloat16, 256)])
def test_halves_are_rounded_once(kind, dtype, big):
    value = PerReplica([np.asarray(x, dtype) for x in (big, 1, 1)])
    same(kind().reduce("SUM", value, None), np.asarray(big + 2, dtype))


@pytest.mark.parametrize("kind", OWN)
def test_small_integers_wrap_as_numpys_do(kind):
    value = PerReplica([np.int8(100), np.int8(100)])
    same(kind().reduce("SUM", value, None), np.int8(-56))


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("other", [np.ones(3), np.ones(2, np.float32), np.ones((1, 2))])
def test_unequal_values(kind, other):
    what = "Shape" if other.shape != (2,) else "Dtype"
    words = f"^{what} mismatch, cannot reduce: replica 0 .* local replica 1 has shape"
    with pytest.raises(ValueError, match=words):
        kind().reduce("SUM", PerReplica([np.ones(2), other]), None)


BATCHES = {
    "bare arrays": [np.arange(3.0), np.ones((2, 2)), np.full((), 2.0)],
    "halves": [np.float16([2048, 1]), np.float16([[1.5]])],
    "bools": [np.array([True, False]), np.array([True])],
    "several dtypes": [np.arange(3.0), np.ones(2, np.float32), np.arange(4)],
    "another order": [np.ones((3, 2), order="F"), np.arange(8.0)[::2]],
    "values of two replicas": [PerReplica([np.arange(3.0), np.ones(3)]) for _ in range(3)],
    "bools of two": [PerReplica([np.array([True, False]), np.array([False, False])])],
    "halves of two": [PerReplica([np.float16([2048]), np.float16([1])])] * 2,
    "lists": [PerReplica([[1.0, 2.0], [3.0, 4.0]]), PerReplica([[1], [2]])],
    "variables": [Variable(np.ones(3)), Variable(np.arange(2.0))],
    "nothing": [],
}


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_batch_is_combined_as_its_values_one_by_one(kind, op, batch):
    found = kind().batch_reduce(op, [(value, None) for value in batch])
    assert len(found) == len(batch)
    for got, value in zip(found, batch, strict=True):
        same(got, kind().reduce(op, value, None))


@pytest.mark.parametrize("kind", OWN)
def test_unequal_values_in_a_batch(kind):
    for other in (np.ones(3), np.ones(2, np.float32)):
        values = [PerReplica([np.ones(2)] * 2), PerReplica([np.ones(2), other])]
        with pytest.raises(ValueError, match="mismatch, cannot reduce: replica 0"):
            kind().batch_reduce("SUM", [(value, None) for value in values])


def test_accumulation_fn_gets_lists():
    got = []
    ops = ReductionToOneDevice(accumulation_fn=lambda some: got.append(some) or some[0])
    pairs = [(PerReplica([np.ones(2)] * 2), None), (PerReplica([np.ones(3)] * 2), None)]
    ops.batch_reduce("SUM", pairs)
    assert [(type(some), len(some)) for some in got] == [(list, 2)] * 2


def test_accumulation_fn():
    ops = ReductionToOneDevice("CPU:0", accumulation_fn=np.maximum.reduce)
    value = PerReplica([np.array([1.0, 8.0]), np.array([4.0, 2.0])])
    same(ops.reduce("SUM", value, None), np.array([4.0, 8.0]))
    same(ops.reduce("MEAN", value, None), np.array([2.0, 4.0]))  # TensorFlow halves it too


@pytest.mark.parametrize("kind", [HierarchicalCopyAllReduce, NcclAllReduce])
def test_number_of_packs(kind):
    assert (kind().num_packs, kind(num_packs=0).num_packs) == (1, 0)
    with pytest.raises(ValueError, match="num_packs=-1"):
        kind(num_packs=-1)


def test_the_base_class_must_be_subclassed():
    with pytest.raises(NotImplementedError, match="must implement reduce_implementation"):
        CrossDeviceOps().reduce("SUM", 1.0, None)
    with pytest.raises(ValueError, match="'MAX' is not a valid ReduceOp"):
        OneByOne().reduce("MAX", 1.0, None)
    with pytest.raises(TypeError, match="expected a CrossDeviceOps"):
        MirroredStrategy(cross_device_ops="nccl")


# ------------------------------------------------------------------------ given to a strategy


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_strategy_uses_what_it_is_given(kind, ranks):
    def body(comm):
        ops = kind()
        with MirroredStrategy(["CPU:0", "CPU:1"], ops, comm=comm) as strategy:
            assert strategy.extended.cross_device_ops is ops
            count = 2 * ranks
            value = strategy.experimental_distribute_values_from_function(
                lambda context: np.full(2, 1.0 + context.replica_id_in_sync_group)
            )
            total = count * (count + 1) / 2
            same(strategy.reduce("SUM", value, axis=None), np.full(2, total))
            same(strategy.reduce("SUM", value, axis=0), 2 * total)
            same(strategy.reduce("MEAN", value, axis=0), total / count)
            nest = strategy.reduce("SUM", {"a": value, "b": [value]}, axis=None)
            same(nest["b"][0], np.full(2, total))
            with strategy.scope():
                same(Variable(np.ones(2)) + strategy.reduce("MEAN", 1.0, axis=None), [2.0, 2.0])
            return getattr(ops, "calls", None)

    for calls in run_ranks(ranks, body):
        assert calls is None or calls >= 7


def test_strategies_may_share_an_object():
    """Each combines over its own replicas, and outlives the other."""
    ops = ReductionToOneDevice()
    value = PerReplica([np.float64(1), np.float64(2)])
    with MirroredStrategy(["CPU:0", "CPU:1"], ops) as two:
        with MirroredStrategy(["CPU:0"], ops) as one:
            same(one.reduce("MEAN", 3.0, axis=None), np.float64(3))
            same(two.reduce("MEAN", value, axis=None), np.float64(1.5))
        same(two.reduce("SUM", value, axis=None), np.float64(3))


def test_options_reach_the_communicator():
    """A strategy's options are those of each call that has none of its own."""

    class Recorder(CollectiveAllReduce):
        def over_ranks(self, sums, options):
            seen.append((options.bytes_per_pack, options.timeout_seconds))
            return super().over_ranks(sums, options)

    seen = []
    options = CommunicationOptions(bytes_per_pack=7, timeout_seconds=30)
    strategy = MultiWorkerMirroredStrategy(communication_options=options)
    with strategy:
        strategy.extended.cross_device_ops = Recorder()
        strategy.extended.reduce_to("SUM", 1.0, None)
        strategy.extended.batch_reduce_to("SUM", [(1.0, None)], CommunicationOptions(8, 20))
    assert seen == [(7, 30), (8, 20)]


def test_bytes_per_pack_is_the_size_of_the_buckets():
    def body(comm):
        with MirroredStrategy(comm=comm) as strategy:
            communicator = strategy.extended.communicator
            sizes, inner = [], communicator.allreduce_many

            def recorded(arrays, **kwargs):
                sizes.append(kwargs["bucket_bytes"])
                return inner(arrays, **kwargs)

            communicator.allreduce_many = recorded
            pairs = [(np.ones(4) * i, None) for i in range(5)]
            for size in (0, 1, 64, 1 << 20):
                totals = strategy.extended.batch_reduce_to(
                    "SUM", pairs, CommunicationOptions(bytes_per_pack=size)
                )
                for i, total in enumerate(totals):
                    same(total, np.full(4, 2.0 * i))
            return sizes

    assert run_ranks(2, body) == [[None, 1, 64, 1 << 20]] * 2


@pytest.mark.parametrize("kind", [CollectiveAllReduce, ReductionToOneDevice])
def test_the_deadline_of_a_call(kind):
    """The rank that waits gives up; the one that comes too late hears of it by its next call."""

    def body(comm):
        strategy = MirroredStrategy(comm=comm, cross_device_ops=kind())
        options = CommunicationOptions(timeout_seconds=0.05)
        start = time.monotonic()
        if strategy.extended.communicator.rank == 0:
            with pytest.raises(TimeoutError):
                strategy.extended.reduce_to("SUM", 1.0, None, options)
            return time.monotonic() - start
        time.sleep(0.4)
        with suppress(CommunicationError):
            strategy.extended.reduce_to("SUM", 1.0, None, options)  # may find all that it needs
        with pytest.raises(CommunicationError):
            strategy.extended.reduce_to("SUM", 1.0, None)
        return 0.0

    waited_s, _ = run_ranks(2, body)
    assert 0.05 <= waited_s < 5.0


# ----------------------------------------------------------------------------------- the options


@pytest.mark.parametrize("value", [-1, 1.5, "x", None])
def test_bad_bytes_per_pack(value):
    with pytest.raises(ValueError, match="bytes_per_pack="):
        CommunicationOptions(bytes_per_pack=value)


@pytest.mark.parametrize("value", [0, -1, math.nan, "x", 1j])
def test_bad_timeouts(value):
    with pytest.raises(ValueError, match="timeout_seconds="):
        CommunicationOptions(timeout_seconds=value)


def test_implementations_by_name():
    """TensorFlow takes names in any case, and so do we."""
    for value in ("ring", "RING", CommunicationImplementation.RING):
        options = CommunicationOptions(implementation=value)
        assert options.implementation is CommunicationImplementation.RING
    for value in ("pigeon", 3, None):
        with pytest.raises(ValueError, match="implementation="):
            CommunicationOptions(implementation=value)
