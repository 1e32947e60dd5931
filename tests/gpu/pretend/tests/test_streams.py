"""Streams, events and launches of the pretended GPU (runtime_programs/streams.py)."""

import signal

import pytest

from gpu.pretend.tests.runtime_job import outcome, run, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def test_order():
    run("streams.blocking_streams_and_the_default_one,work_is_done_in_order")
    run("streams.each_thread_has_a_stream_of_its_own")


def test_events():
    run("streams.events_order_streams,times_of_events")


def test_what_waits_for_queued_work():
    run("streams.destroyed_streams_finish,free_waits")


def test_launches():
    run("streams.arguments_are_read_at_the_call,impossible_launches")


def test_wrong_handles():
    run("streams.wrong_handles")


@takes_long()
def test_late_work():
    run("streams.work_is_late", PRETEND_LATE_MS="50")
    functions = "many_streams,events_order_streams,work_is_done_in_order"
    run(f"streams.{functions}", PRETEND_LATE_MS="0-3")


@pytest.mark.parametrize("value", ["x", "3-1", "-1", "1-2-3"])
def test_a_wrong_setting_is_named(value):
    code, output = outcome("streams.wrong_handles", PRETEND_LATE_MS=value)
    assert code == -signal.SIGABRT
    assert f"PRETEND_LATE_MS={value}: expected milliseconds" in output
