"""Slices of TPUs whose data ends at different times: all of them get as many batches."""

import contextlib
import tempfile
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from helpers.tf.cases import drop, steady  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import CommunicationTimeoutError, UsageError  # noqa: E402 - TF may be missing
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

pytestmark = takes_long()

four_cpus()

TWO = pytest.mark.mpi(ranks=2, timeout_s=30)


def world_folder(s):
    return Path(s.communicator.bcast_object(tempfile.mkdtemp()))


def three_files(s, is_static):
    """Return rows of which rank 0 has twice as many as rank 1."""
    names = [str(world_folder(s) / str(i)) for i in range(3)]
    if s.is_chief:
        for i, name in enumerate(names):
            Path(name).write_text("".join(f"{10 * i + row}\n" for row in range(4)))
    s.communicator.barrier()
    rows = tf.data.TextLineDataset(names).map(tf.strings.to_number)
    rows = steady(rows.batch(4, drop_remainder=is_static))
    return s.experimental_distribute_dataset(rows)


def sums_until_the_end(step, iterator):
    found = []
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while len(found) < 9:
            found.append(float(step(iterator)))
    with pytest.raises(tf.errors.OutOfRangeError):  # it stays at its end
        step(iterator)
    return found


@TWO
@pytest.mark.parametrize("is_static", [False, True] if with_all() else [True])
def test_slices_with_unequal_files_end_together(is_static):
    with initialized(), mpistrat.TPUStrategy(PretendResolver()) as s:

        @tf.function
        def step(iterator):
            return s.reduce("SUM", next(iterator), axis=0)

        @tf.function
        def loop(data):
            total, steps = tf.constant(0.0), tf.constant(0)
            for batch in data:
                total, steps = total + s.reduce("SUM", batch, axis=0), steps + 1
            return total, steps

        data = three_files(s, is_static)
        sums = [0 + 1 + 10 + 11, 2 + 3 + 12 + 13, 20 + 21, 22 + 23]
        ends_at = 2 if is_static else 4
        for _ in range(2):  # epochs
            batches = list(data)
            assert [float(s.reduce("SUM", one, axis=0)) for one in batches] == sums[:ends_at]
        assert sums_until_the_end(step, iter(data)) == sums[:ends_at]
        if is_static:
            shapes = {one.shape for one in s.experimental_local_results(batches[-1])}
            assert shapes == {tf.TensorShape([1])}
        assert [int(one) for one in loop(data)] == [sum(sums), 4]  # in a loop, as on one TPU


@TWO
def test_slices_of_a_function_end_together():
    with initialized(), mpistrat.TPUStrategy(PretendResolver()) as s:

        def rows(context, is_static=False):
            mine = tf.data.Dataset.range(8 * (1 - context.input_pipeline_id))
            return steady(mine.batch(2, drop_remainder=is_static))

        iterator = iter(s.distribute_datasets_from_function(rows))
        found = []
        while (optional := iterator.get_next_as_optional()).has_value():
            found.append(int(s.reduce("SUM", optional.get_value(), axis=0)))
        assert found == [0 + 1 + 2 + 3, 4 + 5 + 6 + 7]
        assert list(s.distribute_datasets_from_function(lambda one: rows(one, True))) == []
        for unlike in (
            lambda one: rows(one, one.input_pipeline_id == 1),
            lambda one: tf.data.Dataset.range(4).repeat(1 - 2 * one.input_pipeline_id).batch(1),
        ):
            with pytest.raises(UsageError, match=r"slices by rank: .*'.*', '.*'.*; .*repeat\(\)"):
                s.distribute_datasets_from_function(unlike)


@TWO
def test_one_rank_alone_cannot_save_what_is_summed_over_all():
    from mpi4py import MPI

    with initialized(), pytest.MonkeyPatch.context() as patch:
        s = mpistrat.TPUStrategy(PretendResolver())
        with s.scope():
            rows = tf.Variable(
                0.0,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        rows.assign(8.0)
        saved, folder = tf.train.Checkpoint(rows=rows), world_folder(s)
        path = saved.write(folder / "all")
        assert float(tf.train.load_variable(path, "rows/.ATTRIBUTES/VARIABLE_VALUE")) == 8.0
        if s.is_chief:
            patch.setenv("MPISTRAT_TIMEOUT", "0.5")
            with pytest.raises(
                CommunicationTimeoutError, match=r"one by some ranks.*on all ranks"
            ):
                saved.write(folder / "one")
        MPI.COMM_WORLD.Barrier()
        drop(s)
