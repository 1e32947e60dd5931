"""Variables on ps where a program uses them in odd places: after the end, in forks, in threads."""

import os

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import IndexedSlices, Variable
from mpistrat.coordinator import ClusterCoordinator
from mpistrat.coordinator.server import Server
from mpistrat.errors import ClosedError, ContextError
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.testing.sets import takes_long


def test_what_a_closed_strategy_refuses_says_so():
    strategy = ParameterServerStrategy(Cast(1, 1, 2).resolver())
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        v = Variable(np.zeros(3))
    v.assign_add(np.ones(3))
    strategy.close()
    calls = [lambda: v.assign(np.ones(3)), v.numpy, lambda: coordinator.schedule(abs, args=(1,))]
    for call in [*calls, coordinator.join]:
        with pytest.raises(ClosedError, match="make a new one"):
            call()


@on_jobs
def test_a_forked_process_cannot_use_its_parents_connections(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros(3))

        def refused(call):
            with pytest.raises(ContextError, match="was forked"):
                call()

        child = os.fork()
        if not child:
            try:
                refused(lambda: v.assign_add(np.ones(3)))
                refused(v.numpy)
                refused(lambda: coordinator.schedule(abs, args=(-1,)))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert v.numpy().tolist() == [0, 0, 0]


def test_a_read_is_not_of_an_older_version_that_another_thread_has_seen():
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros(3))
        v.numpy()
        old = v._seen
        v.assign(np.ones(3))
        assert v.numpy().tolist() == [1, 1, 1]
        read = v._local.read

        def read_while_another_thread_takes_in_what_it_asked_for_before(version):
            found = read(version)
            v._seen = old
            return found

        v._local.read = read_while_another_thread_takes_in_what_it_asked_for_before
        assert v.numpy().tolist() == [1, 1, 1]


@on_jobs
@pytest.mark.parametrize("length", [3, 100_000])
def test_values_that_cannot_be_written_to_can_be_subtracted(layout, length):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.ones(length))
        v.assign_sub(v.read_value())
        assert not v.numpy().any()
        rows = np.full(length, 2.0)
        rows.flags.writeable = False
        v.scatter_sub(IndexedSlices(rows, np.arange(length)))
        assert (v.numpy() == -2).all()
        v.scatter_sub(IndexedSlices(v.read_value(), np.arange(length)))
        assert not v.numpy().any()


@takes_long()
@pytest.mark.mpi(3)
def test_two_strategies_in_turn_and_a_server_that_has_served():
    for number in range(2):
        resolver = Cast(3, 1, 1).resolver()
        if resolver.task_type != "chief":
            server = Server(resolver)
            server.join()
            with pytest.raises(ClosedError, match="make a Server for each"):
                server.join()
            continue
        with ParameterServerStrategy(resolver) as strategy, strategy.scope():
            v = Variable(float(number))
            assert ClusterCoordinator(strategy).schedule(v.numpy).fetch() == number


@on_jobs
@pytest.mark.parametrize("make", ["ParameterServerStrategy", "Server", "MirroredStrategy"])
def test_a_strategy_of_all_ranks_is_not_made_in_a_function(layout, make):
    """On one rank a mirrored one is of that rank alone."""

    @on_chief(layout)
    def _(strategy, coordinator):
        def worker_fn():
            resolver = [] if make == "MirroredStrategy" else [Cast(1, 1, 1).resolver()]
            return getattr(mpistrat, make)(*resolver).num_replicas_in_sync

        value = coordinator.schedule(worker_fn)
        if make == "MirroredStrategy" and layout.ranks == 1:
            assert value.fetch() == 1
            return
        with pytest.raises(ContextError, match=rf"a {make} made in a function on worker \d"):
            value.fetch()
        with pytest.raises(ContextError):
            coordinator.join()
