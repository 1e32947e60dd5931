"""The loop of every wait: its deadline, pauses, looks and complaints, by a false clock."""

import itertools
import math

import pytest

from mpistrat.system import waiting
from mpistrat.system.waiting import backoff, wait_until


class Clock:
    """A clock that goes on only in sleeps, which it remembers."""

    def __init__(self):
        self.now, self.slept = 100.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def after(tests):
    """Return a condition that holds at its test number `tests`, counted from 0."""
    count = itertools.count()
    return lambda: next(count) >= tests


def test_what_holds_already_is_not_waited_for(clock):
    assert wait_until(after(0), 0.0, 1.0, look=pytest.fail)
    assert clock.slept == []


def test_it_pauses_between_tests(clock):
    assert wait_until(after(3), 10.0, 0.25)
    assert clock.slept == [0.25] * 3


def test_pauses_may_differ(clock):
    assert wait_until(after(5), 10.0, backoff(2, 0.5, 2.0, 1.5))
    assert clock.slept == [0.0, 0.0, 0.5, 1.0, 1.5]


def test_the_last_test_comes_after_the_last_pause(clock):
    """Also after a pause far longer than the deadline, as of a process that was stopped."""
    assert wait_until(after(1), 0.5, 30.0)
    assert not wait_until(after(2), 0.5, 30.0)


def test_a_deadline_ends_the_wait_soon_after_it(clock):
    start = clock.now
    assert not wait_until(lambda: False, 1.0, 0.25)
    assert 1.0 < clock.now - start <= 1.25


def test_what_lets_time_pass_is_told_how_long_the_wait_has_lasted(clock):
    told = []

    def pause(waited_s):
        told.append(waited_s)
        clock.sleep(0.5)

    assert wait_until(after(3), 10.0, pause)
    assert told == [0.0, 0.5, 1.0]


def test_it_looks_after_each_test_that_fails_before_the_deadline_ends_the_wait(clock):
    looks = []
    assert not wait_until(lambda: False, 1.0, 0.5, look=looks.append)
    assert looks == [0.0, 0.5, 1.0, 1.5]


def test_a_look_can_end_the_wait(clock):
    def look(waited_s):
        if waited_s >= 1.0:
            raise ValueError("it can never hold")

    with pytest.raises(ValueError, match="never"):
        wait_until(lambda: False, math.inf, 0.5, look=look)
    assert clock.slept == [0.5, 0.5]


def test_it_complains_once(clock):
    said = []

    def complain():
        said.append(clock.now)

    assert wait_until(after(20), math.inf, 0.25, complain=complain, complain_after_s=2.0)
    assert said == [102.25]


def test_a_wait_that_is_over_in_time_complains_of_nothing(clock):
    assert wait_until(after(8), 10.0, 0.25, complain=pytest.fail, complain_after_s=2.0)
