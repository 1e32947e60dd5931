"""Interrupted callers, forked processes and workers that do not end; workers are threads."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from helpers.coordinator.coordination import Cast
from mpistrat import Variable
from mpistrat.coordinator import ClusterCoordinator
from mpistrat.errors import CommunicationTimeoutError, ContextError
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Run
from mpistrat.ps.transport.stream import Stream
from mpistrat.strategy.parameter_server import program_end
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.testing.sets import takes_long


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_function_is_sent_loses_nothing(monkeypatch):
    with ParameterServerStrategy(Cast(1, 1, 1).resolver()) as strategy:
        coordinator = ClusterCoordinator(strategy)
        with strategy.scope():
            v = Variable(0)
        post = Stream.post

        def interrupted(self, message):
            if message[0] == "RunCalls":
                signal.raise_signal(signal.SIGINT)
            post(self, message)

        def add():
            v.assign_add(1)

        monkeypatch.setattr(Stream, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            coordinator.schedule(add)
        monkeypatch.undo()
        coordinator.schedule(add)
        coordinator.join()
        assert int(v) == 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@takes_long()
def test_a_worker_that_does_not_end_is_named_and_the_ps_do_not_wait_for_it(monkeypatch):
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.3")
    strategy = ParameterServerStrategy(Cast(1, 1, 2).resolver())
    servers = [*strategy.embedded._threads]
    coordinator = ClusterCoordinator(strategy)
    coordinator.schedule(time.sleep, args=(3.0,))
    with pytest.raises(CommunicationTimeoutError, match=r"worker 0 .* in function sleep"):
        strategy.close()
    for server in servers:
        server.join(10)
        assert not server.is_alive()


def test_ps_that_did_not_end_a_round_in_time_are_asked_once(monkeypatch):
    asked = []

    def late(_, questions):
        asked.append(questions)
        raise CommunicationTimeoutError("ps 0 is late", (0,))

    with ParameterServerStrategy(Cast(1, 1, 1).resolver(), synchronous=True) as strategy:
        coordinator = ClusterCoordinator(strategy)
        monkeypatch.setattr(Client, "ask_each", late)
        coordinator.schedule(lambda: None)
        for _ in range(10):
            with pytest.raises(CommunicationTimeoutError, match="ps 0 is late"):
                coordinator.join()
            coordinator._dispatcher._listener.ring()
            time.sleep(0.01)
        monkeypatch.undo()
    assert len(asked) == 1


def test_a_forked_child_ends_only_what_it_made():
    strategy = ParameterServerStrategy(Cast(1, 1, 1).resolver())
    child = os.fork()
    if not child:
        status = 1
        try:
            own = ParameterServerStrategy(Cast(1, 1, 1).resolver())
            status = 0 if program_end._open.strategies == {own} else 2
            program_end._open.end()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with strategy.scope():
        v = Variable(np.zeros(3))
    assert v.numpy().tolist() == [0.0] * 3
    strategy.close()


def sleep_there(context, seconds):
    time.sleep(seconds)


def test_a_forked_child_does_not_wait_for_a_lock_of_its_parent():
    with ParameterServerStrategy(Cast(1, 1, 1).resolver()) as strategy:
        with strategy.scope():
            v = Variable(np.zeros(3))
        client = strategy.extended.client
        asking = threading.Thread(target=client.ask, args=(0, Run(sleep_there, (1.0,))))
        asking.start()
        while not client._connections[0]._lock.locked():
            time.sleep(0.001)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not the handler of the test plugin
            signal.alarm(10)
            try:
                v.assign_add(np.ones(3))
            except ContextError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        asking.join(10)
        assert v.numpy().tolist() == [0.0] * 3
