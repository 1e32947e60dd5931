"""A signal of a critical section is handled after it, by whatever handled it before."""

import signal
import subprocess
import sys
import threading

import pytest

from mpistrat.system.deferred_signals import signals_deferred


class SignalError(Exception):
    pass


def come(number, frame):
    raise SignalError(signal.Signals(number).name)


def run_deferred(deferred, sent, after=lambda: None):
    """Run a block in which a signal comes."""
    with signals_deferred(*deferred):
        signal.raise_signal(sent)
        after()


@pytest.fixture(autouse=True)
def handler():
    before = {one: signal.signal(one, come) for one in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, one in before.items():
        signal.signal(number, one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_handled_when_the_block_has_ended(number):
    done = []
    with pytest.raises(SignalError, match=number.name):
        run_deferred([signal.SIGTERM, signal.SIGHUP], number, lambda: done.append("the rest"))
    assert done == ["the rest"]
    assert signal.getsignal(number) is come


def test_another_signal_is_handled_at_once():
    with pytest.raises(SignalError, match="SIGHUP"):
        run_deferred([signal.SIGTERM], signal.SIGHUP, lambda: pytest.fail("it went on"))


def test_an_error_of_the_block_comes_with_the_signal():
    with pytest.raises(SignalError) as caught:
        run_deferred([signal.SIGTERM], signal.SIGTERM, lambda: [].index("of the block"))
    assert isinstance(caught.value.__context__, ValueError)


def test_what_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_deferred(signal.SIGHUP):
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_other_threads_change_no_handler():
    def block():
        with signals_deferred(signal.SIGTERM):
            seen.append(signal.getsignal(signal.SIGTERM))

    seen = []
    thread = threading.Thread(target=block)
    thread.start()
    thread.join(10)
    assert seen == [come]


def test_a_child_process_has_the_default_handler():
    with signals_deferred(signal.SIGTERM):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    child.terminate()
    assert child.wait(20) == -signal.SIGTERM
