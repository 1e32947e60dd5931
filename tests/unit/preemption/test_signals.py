"""Signals are noted, in the main thread and while foreign code runs there; children are spared."""

import contextlib
import os
import re
import signal
import threading
import time

import pytest

from mpistrat.collectives.health import interrupts
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError
from mpistrat.preemption.signals import SignalNotes, checked_signals

BOTH = (signal.SIGUSR1, signal.SIGTERM)


@pytest.fixture
def notes():
    made = SignalNotes(BOTH)
    made.install()
    yield made
    made.put_back()
    made.close()


def strike(number):
    os.kill(os.getpid(), number)


def in_child(work):
    """Return what `work` returns in a forked child, as its exit status; 200 if it fails."""
    child = os.fork()
    if child == 0:
        status = 200
        try:
            status = int(work())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_signal_is_noted_once_with_its_time(notes):
    before = time.time()
    assert notes.came == {}
    strike(signal.SIGUSR1)
    first = dict(notes.came)
    assert list(first) == [signal.SIGUSR1]
    assert before <= first[signal.SIGUSR1] <= time.time()
    strike(signal.SIGUSR1)
    assert notes.came == first
    strike(signal.SIGTERM)
    assert list(notes.came) == [signal.SIGUSR1, signal.SIGTERM]


def test_handlers_are_put_back():
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    try:
        notes = SignalNotes(BOTH)
        notes.install()
        strike(signal.SIGUSR1)
        assert calls == []
        notes.put_back()
        notes.put_back()
        notes.close()
        strike(signal.SIGUSR1)
        assert calls == [1]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_the_program_has_set_since_stays(notes):
    def own(*_):
        pass

    before = signal.signal(signal.SIGUSR1, own)
    notes.put_back()
    assert signal.signal(signal.SIGUSR1, signal.SIG_DFL) is own
    assert before == notes._note


def test_a_second_one_is_refused(notes):
    with pytest.raises(UsageError, match="a second PreemptionHandler while the first is open"):
        SignalNotes(BOTH).install()
    SignalNotes(()).install()  # without signals it is in nobody's way


@pytest.mark.parametrize(
    ("signals", "kind", "text"),
    [
        ((signal.SIGKILL,), UsageError, "9 cannot be handled; expected such as SIGUSR1"),
        ((0,), UsageError, "0 cannot be handled"),
        (("USR1",), ArgumentTypeError, "'USR1' is no signal"),
        (None, ArgumentTypeError, "None is no signal"),
    ],
)
def test_what_cannot_be_handled(signals, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        checked_signals(signals)


def test_one_signal_need_not_be_in_a_tuple():
    assert checked_signals(signal.SIGUSR1) == (signal.SIGUSR1,)


def test_in_another_thread():
    errors = []

    def work():
        try:
            checked_signals(BOTH)
        except ContextError as error:
            errors.append(str(error))
        assert checked_signals(()) == ()

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join()
    assert "in the thread 'loader': Python handles signals in the main thread alone" in errors[0]


def test_a_forked_child_does_not_have_the_handler(notes):
    def is_spared():
        strike(signal.SIGUSR1)  # which would end it by default
        return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not notes.came

    assert in_child(is_spared) == 1
    assert notes.came == {}  # the child does not write to its parent's pipe, either
    notes.wait(0)
    assert notes.came == {}


def test_a_forked_child_ends_by_sigterm(notes):
    assert in_child(lambda: strike(signal.SIGTERM)) == -signal.SIGTERM


def test_a_signal_is_noted_while_the_main_thread_runs_no_python(notes):
    """A wait for a lock is a system call that goes on after a signal."""
    lock, seen = threading.Lock(), []
    lock.acquire()

    def watch():
        os.kill(os.getpid(), signal.SIGUSR1)
        notes.wait(5)
        seen.append(dict(notes.came))
        lock.release()

    thread = threading.Thread(target=watch)
    thread.start()
    lock.acquire()
    thread.join()
    assert list(seen[0]) == [signal.SIGUSR1]


def test_a_signal_is_noted_during_foreign_code(notes):
    """Then Python writes it to another pipe, of which the watching thread has a copy."""
    seen = []

    def watch():
        notes.wait(5)
        notes.wait(0.1)
        seen.append(dict(notes.came))

    def foreign():
        strike(signal.SIGUSR1)
        notes.came.clear()  # what the handler, which is Python, has noted
        thread = threading.Thread(target=watch)
        thread.start()
        notes.wake()
        thread.join()

    interrupts.foreign(foreign)
    assert list(seen[0]) == [signal.SIGUSR1]
    strike(signal.SIGTERM)
    notes.came.clear()
    notes.wait(1)
    assert list(notes.came) == [signal.SIGTERM]  # the pipe is in its place again


def test_ctrl_c_in_foreign_code_is_heeded_as_before(notes):
    def foreign():
        with contextlib.suppress(KeyboardInterrupt):
            strike(signal.SIGINT)
            time.sleep(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # which foreign code has swallowed
            interrupts.foreign(foreign)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_wakeup_descriptor_of_the_program_stays():
    read, write = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(write)
    try:
        notes = SignalNotes(BOTH)
        notes.install()
        strike(signal.SIGUSR1)
        assert os.read(read, 9) == bytes([signal.SIGUSR1])
        assert list(notes.came) == [signal.SIGUSR1]
        notes.put_back()
        notes.close()
    finally:
        assert signal.set_wakeup_fd(-1) == write
        os.close(read)
        os.close(write)


def test_a_request(notes):
    notes.request()
    assert list(notes.came) == [0]
    notes.wait(60)  # it does not last: the thread that waits was woken
