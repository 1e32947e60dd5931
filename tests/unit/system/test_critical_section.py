"""Blocks that Ctrl-C does not interrupt: it comes after them, once."""

import asyncio
import signal
import time

import pytest

from mpistrat.system.critical_section import uninterrupted


@pytest.fixture(autouse=True)
def handler():
    """Put back what handles an interrupt."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_block(done=None):
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # where Python would run a handler
        if done is not None:
            done.append("whole")


def test_an_interrupt_comes_after_the_block():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_block(done)
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_function_of_the_program_is_called_once():
    calls = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append((number, frame is None)))
    interrupted_block()
    assert calls == [(signal.SIGINT, False)]


def test_an_ignored_interrupt_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupted_block()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_an_event_loop_hears_of_one_interrupt_once():
    calls = []

    async def program():
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, calls.append, 1)
        interrupted_block()
        for _ in range(5):
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    asyncio.run(program())
    assert calls == [1]
