"""Errors of functions on workers come to the chief, once, and it goes on."""

import threading
import time

import pytest

from helpers.coordinator.coordination import on_chief, on_jobs
from mpistrat import Variable
from mpistrat.errors import ClosedError, CoordinatorError


class BrokenError(Exception):
    """Pickles, but not back."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_value_error():
    raise ValueError("said by a function")


@on_jobs
@pytest.mark.parametrize("where", ["join", "done", "schedule"])
def test_errors_come_once_with_the_workers_traceback(layout, where):
    @on_chief(layout)
    def _(strategy, coordinator):
        value = coordinator.schedule(raise_value_error)
        with pytest.raises(ValueError, match="said by a function"):
            value.fetch()
        call = {
            "join": coordinator.join,
            "done": coordinator.done,
            "schedule": lambda: coordinator.schedule(raise_value_error),
        }[where]
        with pytest.raises(ValueError, match="said by a function") as caught:
            call()
        cause = caught.value.__cause__
        assert isinstance(cause, CoordinatorError)
        assert "raise_value_error failed on worker" in str(cause)
        assert 'raise ValueError("said by a function")' in str(cause)
        coordinator.join()
        assert coordinator.done()
        assert coordinator.schedule(abs, args=(-3,)).fetch() == 3
        with pytest.raises(ValueError, match="said by a function"):
            value.fetch()


@on_jobs
def test_what_has_not_begun_is_given_up_after_an_error(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            go, count = Variable(0), Variable(0)

        def wait_and_fail():
            while int(go) == 0:
                time.sleep(0.001)
            raise KeyError("first")

        for _ in range(2):
            coordinator.schedule(wait_and_fail)
        rest = [coordinator.schedule(lambda: count.assign_add(1) and None) for _ in range(10)]
        go.assign(1)
        with pytest.raises(KeyError, match="first"):
            coordinator.join()
        assert int(count) < 10
        with pytest.raises(CoordinatorError, match="was not run"):
            coordinator.fetch(rest)


@on_jobs
def test_errors_that_cannot_travel_are_told_in_words(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        def fail():
            raise BrokenError(1, 2)

        coordinator.schedule(fail)
        with pytest.raises(CoordinatorError, match="BrokenError: 1 and 2"):
            coordinator.join()
        coordinator.schedule(threading.Lock)
        with pytest.raises(TypeError, match="the result cannot be sent"):
            coordinator.join()


@on_jobs
def test_a_closed_strategy_refuses(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        coordinator.schedule(abs, args=(1,))
        strategy.close()
        strategy.close()
        for call in (coordinator.join, lambda: coordinator.schedule(abs, args=(1,))):
            with pytest.raises(ClosedError):
                call()
        with pytest.raises(ClosedError), strategy.scope():
            pass
