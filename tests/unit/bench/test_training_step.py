"""The parts of the case ``step``: buckets with known sums, computation, memory, figures."""

import numpy as np
import pytest

from mpistrat.collectives import Communicator

pytest.importorskip("typer")

from mpistrat.bench.harness.session import Session
from mpistrat.bench.harness.sides import Label, Side
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.models.gradient_set import GradientSet, Table
from mpistrat.bench.training_step import memory
from mpistrat.bench.training_step.backward import Backward, call_us
from mpistrat.bench.training_step.buckets import gathered_bytes, make_buckets
from mpistrat.bench.training_step.carrier import CommunicatorCarrier
from mpistrat.bench.training_step.figures import Traffic, figures_of
from mpistrat.bench.training_step.plan import parse_bucket_bytes
from mpistrat.bench.training_step.sides import StepSide
from mpistrat.bench.training_step.step import Step
from mpistrat.errors import UsageError

SMALL = GradientSet("small", [(3, 4), (5,), (100,), (7, 2)], [Table(50, 4, 9), Table(2, 4, 9)])


def test_the_last_layer_is_in_the_first_bucket():
    *dense, rows = make_buckets(SMALL, 80, rank=0, size=1)
    assert [[one.shape for one in bucket.gradients] for bucket in dense] == [
        [(7, 2)],
        [(100,)],  # larger than a bucket
        [(5,), (3, 4)],
    ]
    assert [bucket.nbytes for bucket in dense] == [56, 400, 68]
    assert rows.sizes == [9 * 4, 2 * 4]  # no table gives more rows than it has


def test_answers_of_one_rank_are_its_gradients():
    buckets = make_buckets(SMALL, 80, rank=0, size=1)
    step = Step(buckets, Backward([n for one in buckets for n in one.sizes], 0))
    with Communicator() as communicator:
        carrier = CommunicatorCarrier(communicator)
        for call in (step.in_sequence, step.overlapped):
            assert step.is_right(lambda call=call: call(carrier))
            assert [one.shape for one in call(carrier)[2]] == [(5,), (3, 4)]
    assert gathered_bytes(buckets) == sum(array.nbytes for array in buckets[-1].arrays)


def test_wrong_answers_are_found():
    buckets = make_buckets(SMALL, 80, rank=0, size=1)

    def answer(bucket):
        bucket.flat[:] = np.concatenate([one.ravel() for one in bucket.gradients])
        return bucket.sums

    for bucket in buckets[:-1]:
        assert bucket.is_right(answer(bucket))
        assert not bucket.is_right(bucket.sums)  # those of the call before were spoilt
        assert not bucket.is_right([one.copy() for one in answer(bucket)][:-1])
        wrong = answer(bucket)
        wrong[-1][...] += 1
        assert not bucket.is_right(wrong)
    rows = buckets[-1]
    assert rows.is_right(rows.expected())
    assert not rows.is_right(rows.expected()[:-1])
    assert not rows.is_right([rows.expected()[0] + 1, *rows.expected()[1:]])
    assert not rows.is_right(rows.expected()[2:] + rows.expected()[:2])


def test_ranks_have_different_rows():
    mine, other = (make_buckets(SMALL, 80, rank, 2)[-1] for rank in (0, 1))
    assert not np.array_equal(mine.arrays[1], other.arrays[1])
    everything = mine.expected()
    assert [len(one) for one in everything] == [
        len(a) + len(b) for a, b in zip(mine.arrays, other.arrays, strict=True)
    ]
    np.testing.assert_array_equal(everything[1], [*mine.arrays[1], *other.arrays[1]])


def test_gradients_share_the_computation_by_size():
    assert Backward([100, 300, 600], 50).calls == [5, 15, 30]
    assert sum(Backward([1] * 7, 50).calls) == 50  # rounding loses nothing
    assert Backward([1, 2], 0).calls == [0, 0]
    with Communicator() as communicator:
        assert call_us(communicator) > 0


def test_a_step_that_does_not_fit_is_refused(monkeypatch):
    with Communicator() as communicator:
        session = Session(communicator, {}, [])
        gradients = GradientSet("large", [(250_000_000,)])
        monkeypatch.setattr(memory, "available_bytes", lambda: 4_000_000_000)
        memory.check_memory(gradients, session)
        monkeypatch.setattr(memory, "available_bytes", lambda: 3_999_999_999)
        with pytest.raises(UsageError, match=r"large \(1.00 GB\) need 4.0 GB .* smaller --scale"):
            memory.check_memory(gradients, session)
        monkeypatch.setattr(memory, "available_bytes", lambda: None)  # not known
        memory.check_memory(gradients, session)


def side(library, is_overlapped=False, is_base=False):
    label = Label(library or "alone", "backend", library, "op", is_base)
    return StepSide(Side(label, lambda: None, lambda: True), library, is_overlapped)


def test_figures():
    sides = [
        side(""),
        side("ours"),
        side("ours", True),
        side("x", False, True),
        side("x", True, True),
    ]
    times = [(10.0, 12.0), (40.0, 42.0), (20.0, 22.0), (80.0, 84.0), (30.0, 33.0)]
    alone, ours, overlapped, theirs, _ = figures_of(sides, [Timing(pair) for pair in times])
    assert (alone.efficiency, alone.overlapped, alone.bases) == (1, None, {})
    assert ours.exposed.rounds_us == (30, 30)
    assert overlapped.overlapped == pytest.approx(1 - 10 / 30)
    assert overlapped.efficiency == pytest.approx(np.median([10 / 20, 12 / 22]))
    assert theirs.bases == {}
    traffic = Traffic(summed_bytes=30_000, gathered_bytes=6000, ranks=4)
    assert ours.busbw_gbps(traffic) == pytest.approx(1.5 * 1.0 + 0.75 * 0.2)
    assert (overlapped.busbw_gbps(traffic), alone.busbw_gbps(traffic)) == (None, None)
    assert ours.record(traffic)["speedup"] == {"x": 2.0}
    assert overlapped.record(traffic)["speedup"] == {"x": 1.5}


@pytest.mark.parametrize("text", ["0", "8,16", "8:64", "many"])
def test_a_bucket_has_one_size(text):
    with pytest.raises(UsageError, match="expected"):
        parse_bucket_bytes(text)
    assert parse_bucket_bytes("25MiB") == 25 << 20
