"""The flight recorder: what it keeps, what it shows, and the switch that turns it off."""

import threading
import time

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.health.call_record import CallRecord, kind_of, text_number
from mpistrat.collectives.health.recorder import PythonRing
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks

UNDER_WAY, DONE, FAILED = range(3)
ROWS = [
    *("number", "sequence", "begin", "end", "nbytes"),
    *("op", "reduction", "dtype", "label", "state"),
]


def native_ring(capacity):
    if why_no_kernels():
        pytest.skip(why_no_kernels())
    return kernels().Records(capacity)


@pytest.fixture(params=[PythonRing, native_ring], ids=["python", "native"])
def make_ring(request):
    return request.param


def rows(ring, first=0):
    return [dict(zip(ROWS, row, strict=True)) for row in ring.read(first)]


# ------------------------------------------------------------------------------------ rings


def test_ring_keeps_calls_in_order(make_ring):
    ring = make_ring(8)
    assert ring.read(0) == []
    assert not ring.end(DONE)  # of nothing
    before = time.monotonic_ns()
    ring.begin(5, 100, 1, 2, 3, 4)
    assert rows(ring)[0]["state"] == UNDER_WAY
    assert rows(ring)[0]["end"] == 0
    ring.end(FAILED)
    ring.end(DONE)  # it is over already
    ring.begin(6, 2**40, 1, 2, 3, 4)
    ring.begin(7, 0, 1, 2, 3, 4)  # ends the one before
    first, second, third = rows(ring)
    assert [first[k] for k in ("number", "sequence", "nbytes")] == [0, 5, 100]
    assert [first[k] for k in ("op", "reduction", "dtype", "label")] == [1, 2, 3, 4]
    assert before <= first["begin"] <= first["end"] <= second["begin"] <= time.monotonic_ns()
    assert [row["state"] for row in (first, second, third)] == [FAILED, DONE, UNDER_WAY]
    assert second["nbytes"] == 2**40
    assert ring.count == 3
    assert [row["number"] for row in rows(ring, 2)] == [2]


def test_ring_forgets_the_oldest(make_ring):
    ring = make_ring(8)
    for i in range(100):
        ring.begin(i, 0, 1, 0, 0, 0)
        assert not ring.end(DONE)  # nobody wants to read
    assert [row["sequence"] for row in rows(ring)] == list(range(92, 100))
    assert ring.count == 100


def test_ring_calls_its_reader_in_time(make_ring):
    ring = make_ring(64)
    for _ in range(5):
        ring.keep(ring.count)
        for _ in range(20):
            ring.begin(1, 0, 1, 0, 0, 0)
            assert not ring.end(DONE)
    ring.keep(ring.count)
    called = 0
    while not called:
        ring.begin(1, 0, 1, 0, 0, 0)
        called = ring.end(DONE) and ring.count
    assert ring.count - 64 <= rows(ring)[0]["number"] <= 100


# ----------------------------------------------------------------------------------- records


def test_kinds_of_calls():
    f4, f8 = np.dtype("f4"), np.dtype("f8")
    call = kind_of(Signature("allreduce", "sum", f4, (3, 5)), None)
    texts = [text_number(text) for text in ("allreduce", "sum", "float32")]
    assert call[1:] == (*texts, 0, 60)
    assert call.digest == fingerprint.digest(Signature("allreduce", "sum", f4, (3, 5)))
    many = kind_of(Signature("allreduce_many", "sum", (f4, f8), ((2,), (3,))), "a label")
    assert many.nbytes == 32
    assert many.dtype == text_number("mixed")
    assert many.label == text_number("a label") != 0
    assert kind_of(Signature("barrier"), None)[2:] == (0, 0, 0, 0)


def test_a_record_in_a_line():
    record = CallRecord(7, "allreduce", "sum", "float32", 60, "here", 10, 2_000_010, "done")
    assert str(record).startswith(
        "call 7, allreduce(sum, float32) of 60 bytes (here): done in 2 ms, "
    )
    late = CallRecord(8, "barrier", None, None, 0, None, time.monotonic_ns(), None, "under way")
    assert str(late).startswith("call 8, barrier(): under way for ")


def test_records_of_a_communicator():
    def rank(handle):
        comm = Communicator(handle)
        comm.allreduce(np.ones((2, 3), np.float32), "max")
        comm.label = "my reason"
        comm.allgather(np.ones((comm.rank, 4)))
        comm.label = None
        with pytest.raises(ValueError, match="op='no'"):
            comm.allreduce(1, "no")
        comm.bcast_object("x" * 1000 if comm.rank == 0 else None)
        records = comm.records()[1:]  # after the exchange of facts
        comm.close()
        return records

    for r, records in enumerate(run_ranks(2, rank)):
        first, second, refused, last = records
        assert [record.sequence for record in records] == [2, 3, 4, 5]
        assert (first.op, first.reduction, first.dtype) == ("allreduce", "max", "float32")
        assert (first.nbytes, first.label, first.state) == (24, None, "done")
        assert (second.op, second.reduction, second.nbytes) == ("allgather", None, r * 32)
        assert second.label == "my reason"
        assert (refused.op, refused.state) == ("a refused call", "failed")
        assert (last.op, last.dtype, last.nbytes > 1000) == ("bcast_object", None, r == 0)
        assert first.start_ns <= first.end_ns <= second.start_ns


def test_asynchronous_calls_are_recorded_as_they_run():
    def rank(handle):
        comm = Communicator(handle)
        works = [comm.iallreduce(np.ones(1000)) for _ in range(3)]
        for work in works:
            work.wait()
        states = [record.state for record in comm.records()]
        comm.close()
        return states

    assert run_ranks(2, rank) == [["done"] * 4] * 2


def test_number_of_records(monkeypatch):
    monkeypatch.setenv("MPISTRAT_RECORDS", "16")
    comm = Communicator()
    for _ in range(100):
        comm.barrier()
    assert [record.sequence for record in comm.records()] == list(range(86, 102))


@takes_long()
def test_the_last_calls_are_shown_once_when_the_communicator_breaks(capsys):
    is_over = threading.Event()

    def rank(handle):
        comm = Communicator(handle)
        for _ in range(20):
            comm.barrier()
        if comm.rank == 1:
            is_over.wait(10)
            return
        with pytest.raises(CommunicationTimeoutError):
            comm.allreduce(np.ones(3), timeout=0.2)
        comm.call_log.show_last_calls()
        is_over.set()

    run_ranks(2, rank)
    lines = [line for line in capsys.readouterr().err.splitlines() if "[mpistrat 0/2]" in line]
    assert lines[0] == "[mpistrat 0/2] the last calls of this communicator:"
    assert len(lines) == 11
    assert "call 22, allreduce(sum, float64) of 24 bytes: failed in" in lines[-1]


def test_a_single_rank_is_silent(capsys):
    comm = Communicator()
    comm.barrier()
    comm.health.break_off(ValueError("x"))
    assert capsys.readouterr().err == ""


# --------------------------------------------------------------------------- MPISTRAT_CHECKS


def test_without_checks_nothing_is_compared_or_recorded(monkeypatch):
    monkeypatch.setenv("MPISTRAT_CHECKS", "0")

    def rank(handle):
        comm = Communicator(handle)
        total = comm.allreduce(np.array([comm.rank + 1.0]), "sum" if comm.rank else "max")
        comm.barrier()
        records = comm.records()
        comm.close()
        return total.tolist(), records

    assert run_ranks(2, rank) == [([2.0], []), ([3.0], [])]
