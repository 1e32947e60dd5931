"""Local replicas that take turns: errors, unwinding, merge calls, context variables."""

import functools
import random
import signal
import threading
import time
from contextvars import ContextVar

import numpy as np
import pytest

from mpistrat import (
    MirroredStrategy,
    Variable,
    VariableAggregation,
    get_replica_context,
    in_cross_replica_context,
)
from mpistrat.errors import ContextError

word: ContextVar[str] = ContextVar("word", default="unset")


def replica():
    found = get_replica_context()
    assert found is not None
    return found


def index() -> int:
    return replica().replica_id_in_sync_group


@pytest.fixture
def strategy():
    with MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"]) as made:
        yield made


def works(strategy) -> bool:
    total = strategy.run(lambda: replica().all_reduce("sum", 1.0))
    return [float(x) for x in strategy.experimental_local_results(total)] == [3.0] * 3


def test_waiting_replicas_are_unwound(strategy):
    """The first waits in a merge call, the second raises, the third never starts."""
    log = []

    def replica_fn():
        log.append(f"start {index()}")
        if index() == 1:
            raise KeyError("second")
        try:
            replica().all_reduce("sum", 1.0)
        except Exception:  # not for user code: the replica must end
            log.append("caught")
            raise
        finally:
            log.append(f"finally {index()}")

    with pytest.raises(KeyError, match="second"):
        strategy.run(replica_fn)
    assert log == ["start 0", "start 1", "finally 0"]
    assert get_replica_context().strategy is not strategy
    assert works(strategy)


def test_a_finally_block_that_raises_or_waits_again(strategy):
    """The error of the replica that failed first is the one that is raised."""
    ended = []

    def replica_fn():
        if index() == 2:
            raise KeyError("third")
        try:
            replica().all_reduce("sum", 1.0)
        finally:
            ended.append(index())
            if index() == 0:
                raise ValueError("in finally")
            replica().all_reduce("sum", 1.0)

    with pytest.raises(KeyError, match="third"):
        strategy.run(replica_fn)
    assert ended == [0, 1]
    assert works(strategy)


def test_what_the_first_replica_raises_stops_the_rest(strategy):
    started = []

    def replica_fn():
        started.append(index())
        raise ValueError(index())

    with pytest.raises(ValueError, match="0"):
        strategy.run(replica_fn)
    assert started == [0]
    assert works(strategy)


def test_an_error_of_the_merge_function_reaches_every_replica(strategy):
    """Each can catch it, and go on to a collective that works."""
    caught = []

    def merge_fn(_):
        raise KeyError("merged")

    def replica_fn():
        try:
            replica().merge_call(merge_fn)
        except KeyError as error:
            caught.append((index(), str(error)))
        return replica().all_reduce("sum", index())

    result = strategy.run(replica_fn)
    assert caught == [(i, "'merged'") for i in range(3)]
    assert [int(x) for x in strategy.experimental_local_results(result)] == [3] * 3
    with pytest.raises(KeyError, match="merged"):
        strategy.run(lambda: replica().merge_call(merge_fn))
    assert works(strategy)


def test_only_some_catch_the_error(strategy):
    def replica_fn():
        try:
            replica().all_reduce("prod", 1.0)
        except ValueError:
            if index() == 1:
                raise
        replica().all_reduce("sum", 1.0)

    with pytest.raises(ValueError, match="'PROD'"):
        strategy.run(replica_fn)
    assert works(strategy)


def test_different_merge_functions(strategy):
    def first(_):
        return 1

    def other(_):
        return 2

    def replica_fn():
        return replica().merge_call(other if index() == 1 else first)

    message = r"replica 0 is in .*first; replica 1 is in .*other; replica 2 is in .*first"
    with pytest.raises(ContextError, match=message):
        strategy.run(replica_fn)
    assert works(strategy)


def test_functions_that_every_replica_makes_anew_are_the_same(strategy):
    """Lambdas, closures, partial functions and bound methods of one origin."""

    class Merger:
        def merge(self, _, x):
            return x

    def add(_, x, *, y):
        return [x, y]

    def replica_fn():
        here = index()
        return (
            replica().merge_call(lambda _, x: (x, here), args=(here,)),
            replica().merge_call(functools.partial(add, y=7), args=(here,)),
            replica().merge_call(Merger().merge, args=(here,)),
        )

    result = strategy.run(replica_fn)
    assert strategy.experimental_local_results(result) == tuple(
        ((i, 0), [i, 7], i) for i in range(3)
    )


def test_one_replica_ends_while_the_others_wait(strategy):
    def replica_fn():
        if index() < 2:
            replica().all_reduce("sum", 1.0)

    with pytest.raises(ContextError, match=r"replica 1 is in .*; replica 2 has ended"):
        strategy.run(replica_fn)
    assert works(strategy)


def test_merge_arguments_of_different_structure(strategy):
    with pytest.raises(ValueError, match="same structure"):
        strategy.run(lambda: replica().all_reduce("sum", [1.0] * (1 + index())))
    assert works(strategy)


def test_a_run_inside_a_merge_call(strategy):
    """The inner run has replicas of its own, which may merge too."""

    def inner(x):
        return replica().all_reduce("sum", x + index())

    def merge_fn(which, x):
        assert which is strategy
        assert in_cross_replica_context()
        result = which.run(inner, args=(x,))
        assert in_cross_replica_context()
        return result

    def replica_fn():
        before = replica()
        total = before.merge_call(merge_fn, args=(10.0 * index(),))
        assert replica() is before
        return float(total), float(before.all_reduce("sum", 1.0))

    result = strategy.run(replica_fn)
    assert strategy.experimental_local_results(result) == ((33.0, 3.0),) * 3


def test_an_error_of_a_run_inside_a_merge_call(strategy):
    def inner():
        if index() == 1:
            raise KeyError("inner")
        replica().all_reduce("sum", 1.0)

    with pytest.raises(KeyError, match="inner"):
        strategy.run(lambda: replica().merge_call(lambda which: which.run(inner)))
    assert works(strategy)


def test_context_variables_are_seen_inside(strategy):
    """What run's caller has set is seen; what a replica sets stays its own."""
    seen = []
    token = word.set("outer")
    try:

        def replica_fn():
            seen.append(word.get())
            word.set(f"replica {index()}")
            replica().merge_call(lambda _: seen.append(word.get()))
            seen.append(word.get())

        strategy.run(replica_fn)
        assert word.get() == "outer"
    finally:
        word.reset(token)
    assert seen == ["outer"] * 4 + [f"replica {i}" for i in range(3)]


def test_one_replica_runs_at_a_time_and_threads_are_kept(strategy):
    running, threads = [], set()

    def replica_fn():
        threads.add(threading.get_ident())
        for _ in range(20):
            running.append(index())
            assert len(set(running)) == 1
            running.clear()
            replica().all_reduce("sum", 1.0)

    for _ in range(5):
        strategy.run(replica_fn)
    before = threading.active_count()
    for _ in range(20):
        strategy.run(replica_fn)
    assert threading.active_count() == before
    assert threading.get_ident() not in threads


def test_other_threads_are_in_no_replica(strategy):
    """A thread that a replica starts has no part in its collectives."""
    errors = []

    def in_thread(context):
        try:
            context.all_reduce("sum", 1.0)
        except ContextError as error:
            errors.append(str(error))

    def replica_fn():
        thread = threading.Thread(target=in_thread, args=(replica(),))
        thread.start()
        thread.join()

    strategy.run(replica_fn)
    assert len(errors) == 3
    assert all("does not run now" in error for error in errors)


def test_an_assignment_that_fails_in_replicas_can_be_caught(strategy):
    with strategy.scope():
        variable = Variable(np.zeros(2), aggregation=VariableAggregation.SUM)

    def replica_fn():
        with pytest.raises(ValueError, match="expected equal shapes"):
            variable.assign(np.ones(3))
        variable.assign_add(np.ones(2))

    strategy.run(replica_fn)
    np.testing.assert_array_equal(variable, [3.0, 3.0])


def test_an_unwound_replica_cannot_go_on():
    """Collectives in the finally block of a replica that is being ended do nothing more."""
    seen = []

    def step():
        context = replica()
        if context.replica_id_in_sync_group == 1:
            raise KeyError("second")
        try:
            context.all_reduce("SUM", 1.0)
        finally:
            seen.append(context.all_reduce("SUM", 5.0))

    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(KeyError):
        strategy.run(step)
    assert seen == []
    assert strategy.reduce("SUM", strategy.run(lambda: 1.0 * index()), axis=None) == 1


def test_two_threads_use_one_strategy():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    sums = []

    def work():
        sums.extend([strategy.run(lambda: replica().all_reduce("SUM", 1.0)) for _ in range(200)])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(sums) == 400
    assert all(value == 2 for one in sums for value in one.values)


@pytest.mark.deadline(30)
def test_interrupts_at_any_moment_leave_the_strategy_usable():
    """Ctrl-C while replicas take turns: run() ends at once, and the next one works."""
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    draw = random.Random(0)
    caught = 0
    for _ in range(40):
        old = signal.signal(signal.SIGPROF, signal.default_int_handler)
        try:  # all of these times are of the CPU: other programs may have it for long
            signal.setitimer(signal.ITIMER_PROF, draw.uniform(1e-4, 5e-3))
            end = time.process_time() + 0.1
            while time.process_time() < end:
                strategy.run(lambda: replica().all_reduce("SUM", 1.0))
        except KeyboardInterrupt:
            caught += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
        assert strategy.reduce("SUM", strategy.run(index), axis=None) == 1
        if caught == 15:
            return
    pytest.fail(f"only {caught} of 40 rounds were interrupted")
