"""Ctrl-C in a fast all-reduce: the rank breaks off, and no peer waits for it in vain."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from helpers.collectives.fast_path import assert_equal, check, drop, open_communicator
from mpistrat.collectives import Communicator
from mpistrat.collectives.progress.engine import Engine
from mpistrat.errors import CommunicationError, PeerLostError
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=40)


class Interrupt:
    """A trace function that raises KeyboardInterrupt, as Ctrl-C does, in one line.

    It counts the lines that run from the moment on when a fast call comes back from C++.
    """

    def __init__(self, line):
        self._left, self._is_on = line, False
        self.place = None

    def __call__(self, frame, event, argument):
        self._is_on |= frame.f_code is Communicator._finish.__code__
        if self._is_on and event in ("call", "line"):
            self._left -= 1
            if self._left < 0:
                self.place = frame.f_code
                raise KeyboardInterrupt
        return self

    def call(self, function, argument):
        """Call a function that is interrupted.

        In a generator, which has a handled error of its own: where a trace function raises in the
        line of an `except`, Python 3.11 takes what was caught there as handled until the end of
        the frames around it, and later tests had it as the context of their errors.
        """
        next(self._calls(function, argument))

    def _calls(self, function, argument):
        gc.disable()  # what is raised in an object's end is lost
        sys.settrace(self)
        try:
            yield function(argument)
        finally:
            sys.settrace(None)
            gc.enable()


def interrupt(comm, array, line, method="allreduce"):
    """Call a fast all-reduce and interrupt it; return the function that it was in."""
    trace = Interrupt(line)
    with pytest.raises(KeyboardInterrupt):
        trace.call(getattr(comm, method), array)
    return trace.place


def see_the_end(comm, array, method="allreduce"):
    """Call what rank 0 has given up; a short call can end well, since its data is there."""
    with pytest.raises(PeerLostError, match="rank 0 gave up with KeyboardInterrupt"):
        all(getattr(comm, method)(array) is not None for _ in range(2))


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=120)  # makes a communicator for each line
@pytest.mark.parametrize(
    ("method", "array", "lines"),
    [
        ("allreduce", np.ones(3), 1),
        ("allreduce", np.ones(9000), 1),
        ("allreduce_many", [np.ones(3), np.ones(2)], 3),  # which has three times as many
    ],
)
def test_interrupt_in_every_line_until_the_call_is_waited_for(method, array, lines):
    line, is_waited_for = 0, False
    with open_communicator() as steady:
        while not steady.allreduce(is_waited_for, "or"):
            comm = open_communicator()
            if comm.rank == 0:
                is_waited_for = interrupt(comm, array, line, method) is Engine.wait.__code__
                with pytest.raises(CommunicationError, match=r"broken.*KeyboardInterrupt"):
                    comm.allreduce(array)
            steady.barrier()
            if comm.rank == 1:
                see_the_end(comm, array, method)
            line += lines
            drop(comm)
    assert line > 10
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize("count", [3, 200_000])
def test_signal_while_cpp_waits(count):
    comm, array = open_communicator(), np.ones(count)
    with open_communicator() as steady:
        if comm.rank == 0:
            before = signal.signal(signal.SIGUSR2, signal.default_int_handler)
            threading.Thread(target=strike, args=(comm,), daemon=True).start()
            with pytest.raises(KeyboardInterrupt):
                comm.allreduce(array)
            signal.signal(signal.SIGUSR2, before)
        steady.barrier()
        if comm.rank == 1:
            see_the_end(comm, array)
    drop(comm)


def strike(comm):
    """Wait for a fast call that has let the GIL go, and send a signal to its thread."""
    while not comm.backend.fast.is_under_way:
        time.sleep(0)
    assert comm.call_log.completed == comm.call_log.sequence - 1
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)


def test_another_interrupt_while_the_first_is_seen_to():
    comm, array = open_communicator(), np.ones(3)
    with open_communicator() as steady:
        if comm.rank == 0:
            say, interrupts = comm.health.break_off, iter([KeyboardInterrupt, KeyboardInterrupt])

            def break_off(error):
                for interrupt in interrupts:
                    raise interrupt
                say(error)

            comm.health.break_off = break_off
            interrupt(comm, array, 0)
            assert "KeyboardInterrupt" in comm.health.broken
        steady.barrier()
        if comm.rank == 1:
            see_the_end(comm, array)
    drop(comm)


def test_a_call_of_another_thread_behind_it():
    comm, array = open_communicator(), np.ones(3)
    with open_communicator() as steady:
        if comm.rank == 0:
            errors = []
            thread = threading.Thread(target=call_behind, args=(comm, errors))
            thread.start()
            interrupt(comm, array, 0)
            thread.join()
            assert len(errors) == 1
        steady.barrier()
        if comm.rank == 1:
            see_the_end(comm, array)
    drop(comm)


def call_behind(comm, errors):
    while not comm.backend.fast.is_under_way:
        time.sleep(0)
    with pytest.raises(CommunicationError) as error:
        comm.barrier()
    errors.append(error.value)


def test_another_interrupt_while_the_lock_is_waited_for():
    """Another thread has the engine's lock until both have struck."""
    comm = open_communicator()
    with open_communicator() as steady:
        if comm.rank == 0:
            works = [comm.iallreduce(np.ones(9000)) for _ in range(3)]
            strike_twice(comm, works[0])
            assert all(work.done for work in works)
            assert not comm.backend.fast.is_busy
        steady.barrier()
        if comm.rank == 1:
            see_the_end(comm, np.ones(9000))
    drop(comm)


def strike_twice(comm, work):
    """Interrupt the wait for `work`, then what ends the works because of that."""
    pending, is_locked = [], threading.Event()

    def raise_one(*_):
        if pending:
            raise pending.pop()

    def hold_the_lock():
        with comm._engine._lock:
            is_locked.set()
            strike_in(Engine._stay, pending)
            while comm.health.broken is None:
                time.sleep(0)
            strike_in(Engine._give_up, pending)  # and no more in what tells the peers

    before = signal.signal(signal.SIGUSR2, raise_one)
    thread = threading.Thread(target=hold_the_lock)
    thread.start()
    is_locked.wait()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    thread.join()
    signal.signal(signal.SIGUSR2, before)


def strike_in(function, pending):
    """Interrupt the main thread in `function`; a signal just before it sleeps does not wake it."""
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code is not function.__code__:
        time.sleep(0)
    pending.append(KeyboardInterrupt)
    while pending:
        signal.pthread_kill(main, signal.SIGUSR2)
        time.sleep(1e-3)


@pytest.mark.parametrize("count", [3, 200_000])
def test_interrupt_while_it_waits(count):
    comm = open_communicator()
    x = np.ones(count)
    comm.allreduce(x)
    if comm.rank == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            comm.allreduce(x)
        assert time.monotonic() - start < 2
        with pytest.raises(CommunicationError, match=r"broken.*KeyboardInterrupt"):
            comm.allreduce(x)
    else:
        time.sleep(0.6)
        with pytest.raises(PeerLostError, match="rank 0 gave up with KeyboardInterrupt"):
            comm.barrier()
    drop(comm)


def test_a_signal_that_is_handled_while_it_waits():
    with open_communicator() as comm:
        seen = []
        before = signal.signal(signal.SIGUSR2, lambda *_: seen.append(time.monotonic()))
        start = time.monotonic()
        if comm.rank == 0:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2)).start()
        else:
            time.sleep(0.5)
        assert_equal(comm.allreduce(np.ones(2)), np.full(2, 2.0))
        signal.signal(signal.SIGUSR2, before)
        if comm.rank == 0:
            assert seen[0] - start < 0.4  # at once, and not when the other rank came
        check(comm, np.ones(2), is_fast=True)
