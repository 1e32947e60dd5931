"""The prefetching thread: order, errors, and no leak."""

import gc
import threading
import time
import traceback
import weakref

import pytest

from mpistrat.errors import MpistratError
from mpistrat.strategy.input import prefetch
from mpistrat.strategy.input.prefetch import Prefetcher
from mpistrat.testing.sets import takes_long

DEADLINE_S = 5.0


def wait_until(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.002)


def threads():
    return [t for t in threading.enumerate() if t.name == "mpistrat-prefetch"]


@pytest.mark.parametrize("buffer", [1, 2, 100])
def test_order_and_end(buffer):
    items = Prefetcher(range(50), buffer)
    assert list(items) == list(range(50))
    assert list(items) == []
    wait_until(lambda: not threads())


def test_it_runs_ahead_but_not_further_than_the_buffer():
    made = []

    def source():
        for i in range(10):
            made.append(i)
            yield i

    items = Prefetcher(source(), 3)
    wait_until(lambda: len(made) == 4)  # three in the buffer, one at the door
    time.sleep(0.02)
    assert len(made) == 4
    assert next(items) == 0
    wait_until(lambda: len(made) == 5)
    items.close()


def test_an_error_arrives_after_the_items_before_it_with_its_traceback():
    def broken_reader():
        yield 1
        raise KeyError("row 7")

    items = Prefetcher(broken_reader(), 4)
    assert next(items) == 1
    with pytest.raises(KeyError, match="row 7") as caught:
        next(items)
    assert "broken_reader" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert list(items) == []


def test_even_system_exit_arrives():
    def leaving():
        raise SystemExit(3)
        yield

    with pytest.raises(SystemExit):
        next(Prefetcher(leaving(), 1))


@takes_long()
def test_dropping_the_iterator_stops_the_thread():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield bytearray(10)
        finally:
            closed.set()

    items = Prefetcher(endless(), 2)
    next(items)
    watch = weakref.ref(items)
    del items
    gc.collect()
    assert watch() is None
    assert closed.wait(DEADLINE_S)
    wait_until(lambda: not threads())


@takes_long()
def test_an_error_does_not_keep_the_iterator_alive():
    def broken():
        raise ValueError("no")
        yield

    items = Prefetcher(broken(), 1)
    watch = weakref.ref(items)
    with pytest.raises(ValueError, match="no"):
        next(items)
    del items
    gc.collect()
    wait_until(lambda: watch() is None)


@takes_long()
def test_a_loop_that_breaks_leaves_no_thread():
    for _ in Prefetcher(iter(int, 1), 2):
        break
    gc.collect()
    wait_until(lambda: not threads())


def test_close_is_idempotent_and_ends_the_iteration():
    items = Prefetcher(range(100), 2)
    assert next(items) == 0
    items.close()
    items.close()
    assert list(items) == []


def test_a_dead_thread_is_noticed(monkeypatch):
    monkeypatch.setattr(prefetch, "LIVENESS_CHECK_S", 0.01)
    monkeypatch.setattr(prefetch, "_produce", lambda source, channel: None)
    with pytest.raises(MpistratError, match="thread ended without a result"):
        next(Prefetcher(range(3), 1))


def test_many_consumers_lose_nothing():
    items, got = Prefetcher(range(500), 5), []
    workers = [threading.Thread(target=lambda: got.extend(items)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE_S)
    assert sorted(got) == list(range(500))
