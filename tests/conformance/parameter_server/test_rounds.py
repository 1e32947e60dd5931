"""Synchronous training: what the workers give in a round is summed, and applied once."""

import time
from unittest.mock import patch

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from helpers.strategy.training import BATCH, MAKERS, STEPS, new_variables, step_gradients
from mpistrat import IndexedSlices, Variable
from mpistrat.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from mpistrat.coordinator.chief import round_end
from mpistrat.errors import ArgumentTypeError, ContextError, CoordinatorError, UsageError
from mpistrat.optimizers import SGD
from mpistrat.ps.server import staged_updates
from mpistrat.ps.storage import shared_store
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.tables.rule import Rule
from mpistrat.testing.sets import takes_long


def give_gradients(optimizer, variables, step, rows):
    """Make a step with some rows of a batch."""
    gradients = step_gradients(step, *variables, rows)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_rounds_train_as_one_process_with_the_whole_batch(layout, parts, make):
    expected, optimizer = new_variables(), make()
    for step in range(STEPS):
        give_gradients(optimizer, expected, step, slice(None))

    @on_chief(layout, FixedShardsPartitioner(parts), synchronous=True)
    def _(strategy, coordinator):
        optimizer = make()
        with strategy.scope():
            variables = new_variables()
        optimizer.build(variables)

        def worker_fn(step, half):
            time.sleep(0.002 * ((step + half) % 2))  # the second is faster, now and then
            rows = slice(0, 5) if half == 0 else slice(5, BATCH)
            strategy.run(give_gradients, args=(optimizer, variables, step, rows))

        for step in range(STEPS):
            for half in range(2):
                coordinator.schedule(worker_fn, args=(step, half))
        coordinator.join()
        assert optimizer.iterations == STEPS
        for found, one in zip(variables, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), one.numpy(), rtol=1e-6, atol=1e-9)


@on_jobs
def test_each_worker_runs_one_function_of_a_round_and_sees_all_of_the_rounds_before(layout):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        optimizer = SGD(1.0)
        with strategy.scope():
            v = Variable(np.zeros(3))
        optimizer.build([v])
        assert strategy.num_replicas_in_sync == 2

        def replica_fn(number):
            seen = v.numpy()
            time.sleep(0.003 * (number % 3))
            optimizer.apply_gradients([(np.full(3, -1.0 - number % 2), v)])
            replica = mpistrat.get_replica_context()
            ids = experimental_get_current_worker_index(), replica.replica_id_in_sync_group
            return seen[0], *ids, replica.num_replicas_in_sync

        def worker_fn(number):
            return strategy.run(replica_fn, args=(number,))

        values = [coordinator.schedule(worker_fn, args=(number,)) for number in range(20)]
        for number, found in enumerate(coordinator.fetch(values)):
            assert found == (3.0 * (number // 2), number % 2, number % 2, 2)
        coordinator.join()
        assert v.numpy().tolist() == [30.0] * 3


@on_jobs
@pytest.mark.parametrize("ends", ["join", "done"])
def test_who_waits_for_all_ends_a_round_that_is_not_full(layout, ends):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        optimizer, v = one_variable(strategy)

        def worker_fn(by):
            optimizer.apply_gradients([(np.full(3, -by), v)])

        for by in (1.0, 10.0, 100.0):
            value = coordinator.schedule(worker_fn, args=(by,))
        value.fetch()
        assert v.numpy().tolist() == [11.0] * 3
        if ends == "join":
            coordinator.join()
        else:
            wait_until(coordinator.done)
        assert v.numpy().tolist() == [111.0] * 3
        assert optimizer.iterations == 2
        optimizer.apply_gradients([(np.full(3, -1000.0), v)])  # on the chief: at once
        assert v.numpy().tolist() == [1111.0] * 3


def one_variable(strategy, dtype=np.float64):
    optimizer = SGD(1.0)
    with strategy.scope():
        v = Variable(np.zeros(3, dtype))
    optimizer.build([v])
    return optimizer, v


def wait_until(holds, deadline_s=10.0):
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


@on_jobs
def test_nothing_is_applied_of_a_round_in_which_a_function_fails(layout):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        optimizer, v = one_variable(strategy)

        def worker_fn(fails):
            optimizer.apply_gradients([(-np.ones(3), v)])
            if fails:
                raise ValueError("after its gradient")
            time.sleep(0.02)

        for _ in range(3):
            for fails in (False, True):
                coordinator.schedule(worker_fn, args=(fails,))
            with pytest.raises(ValueError, match="after its gradient"):
                coordinator.join()
            assert v.numpy().tolist() == [0.0] * 3
        for _ in range(4):
            coordinator.schedule(worker_fn, args=(False,))
        coordinator.join()
        assert v.numpy().tolist() == [4.0] * 3
        assert optimizer.iterations == 2


@on_jobs
def test_a_step_that_cannot_be_is_an_error(layout):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        optimizer, v = one_variable(strategy)

        def twice():
            optimizer.apply_gradients([(np.ones(3), v)])
            optimizer.apply_gradients([(np.ones(3), v)])

        def reduce():
            strategy.run(lambda: mpistrat.get_replica_context().all_reduce("SUM", 1.0))

        def as_rows_or_not():
            gradient = np.ones(3)
            if experimental_get_current_worker_index() == 0:
                gradient = IndexedSlices([1.0], [0], (3,))
            optimizer.apply_gradients([(gradient, v)])

        def dataset_fn():
            optimizer.apply_gradients([(np.ones(3), v)])

        refused(coordinator, twice, UsageError, "a second step of the optimizer")
        refused(coordinator, reduce, ContextError, "workers do not wait for each other")
        refused(coordinator, as_rows_or_not, UsageError, "expected the same kind from all")
        coordinator.create_per_worker_dataset(dataset_fn)
        with pytest.raises(ContextError, match="in a function that is in no round"):
            coordinator.join()
        assert v.numpy().tolist() == [0.0] * 3


@on_jobs
def test_a_round_that_is_wrong_on_one_ps_is_applied_on_none(layout):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        optimizer = SGD(1.0)
        with strategy.scope():
            variables = [Variable(np.zeros(3)) for _ in range(4)]
        optimizer.build(variables)
        assert len({v.device for v in variables}) == 2

        def worker_fn(is_right):
            gradients = [np.full(3, -1.0)] * 4
            if not is_right and experimental_get_current_worker_index() == 0:
                gradients[3] = IndexedSlices([-1.0], [0], (3,))
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        for is_right in (False, True):
            for _ in range(2):
                coordinator.schedule(worker_fn, args=(is_right,))
            if not is_right:
                with pytest.raises(UsageError, match="expected the same kind from all"):
                    coordinator.join()
                assert optimizer.iterations == 0
            coordinator.join()
            value = [2.0 * is_right] * 3
            assert [v.numpy().tolist() for v in variables] == [value] * 4
        assert optimizer.iterations == 1


class Lacking:
    """Fail for lack of memory, for some times, where the arrays have one length."""

    def __init__(self, function, times):
        self.function, self.left = function, times

    def __get__(self, rule, kind=None):
        return lambda variable, *rest: self(rule, variable, *rest)

    def __call__(self, rule, variable, *rest):
        if variable[0].shape == (5,) and self.left:
            self.left -= 1
            raise MemoryError("not for this")
        return self.function(rule, variable, *rest)


@on_jobs
@pytest.mark.parametrize("times", [2, 99])
def test_a_round_that_lacks_memory_on_one_ps_is_applied_on_all_or_ends_the_job(layout, times):
    with (
        patch.object(Rule, "apply_apart", Lacking(Rule.apply_apart, times)),
        patch.object(round_end, "_PAUSES_S", (0.0, 0.01, 0.02)),
    ):

        @on_chief(layout, synchronous=True)
        def _(strategy, coordinator):
            optimizer = SGD(1.0, 0.5)
            with strategy.scope():
                variables = [Variable(np.zeros(n)) for n in (3, 5, 4, 2)]
            optimizer.build(variables)

            def worker_fn():
                gradients = [np.full(v.shape, -1.0) for v in variables]
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

            for _ in range(2):
                coordinator.schedule(worker_fn)
            if times > 2:
                for _ in range(2):
                    words = r"in part only, since ps . .*variable \d+: not for this; start the job"
                    with pytest.raises(CoordinatorError, match=words):
                        coordinator.join()
                return
            coordinator.join()
            assert [v.numpy().tolist() for v in variables] == [[2.0] * n for n in (3, 5, 4, 2)]
            assert optimizer.iterations == 1


@takes_long()
@on_jobs
def test_a_half_updated_variable_is_not_updated_again(layout):
    nothing = shared_store._NoMemoryError("no memory for another buffer")
    with (
        patch.object(Rule, "apply_apart", Lacking(Rule.apply_apart, 1)),
        patch.object(shared_store.OwnedStore, "_other_buffer", side_effect=nothing),
    ):

        @on_chief(layout, synchronous=True)
        def _(strategy, coordinator):
            optimizer, v = SGD(1.0, 0.5), made_in(strategy, np.zeros(5))
            optimizer.build([v])
            coordinator.schedule(lambda: optimizer.apply_gradients([(np.ones(5), v)]))
            with pytest.raises(CoordinatorError, match="not for this; it is half updated; start"):
                coordinator.join()


def made_in(strategy, value):
    with strategy.scope():
        return Variable(value)


@on_jobs
def test_a_round_for_whose_sums_there_is_no_memory_is_applied_on_none(layout):
    def lacks(gradients):
        if gradients[0].shape == (5,) and gradients[0][0] > 0:
            raise MemoryError("not for this sum")
        return summed(gradients)

    summed = staged_updates._sum
    with patch.object(staged_updates, "_sum", lacks):

        @on_chief(layout, synchronous=True)
        def _(strategy, coordinator):
            optimizer = SGD(1.0)
            with strategy.scope():
                variables = [Variable(np.zeros(n)) for n in (3, 5, 4, 2)]
            optimizer.build(variables)

            def worker_fn(by):
                gradients = [np.full(v.shape, by) for v in variables]
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

            for by in (1.0, -1.0):
                for _ in range(2):
                    coordinator.schedule(worker_fn, args=(by,))
                if by > 0:
                    with pytest.raises(MemoryError, match="not for this sum"):
                        coordinator.join()
            coordinator.join()
            assert [v.numpy().tolist() for v in variables] == [[2.0] * n for n in (3, 5, 4, 2)]
            assert optimizer.iterations == 1


def refused(coordinator, function, error, words):
    def run_a_round():
        for _ in range(2):
            coordinator.schedule(function)
        coordinator.join()

    with pytest.raises(error, match=words):
        run_a_round()
    coordinator.join()


def test_half_types_are_summed_in_float32_and_rounded_once():
    @on_chief(Cast(1, 8, 1), synchronous=True)
    def _(strategy, coordinator):
        optimizer, v = one_variable(strategy, np.float16)

        def worker_fn(by):
            optimizer.apply_gradients([(np.full(3, -by, np.float16), v)])

        for by in [2048.0] + [0.5] * 7:  # in float16 each of the sums would stay 2048
            coordinator.schedule(worker_fn, args=(by,))
        coordinator.join()
        assert v.numpy().tolist() == [2052.0] * 3


@on_jobs
def test_assignments_do_not_wait_for_the_round(layout):
    @on_chief(layout, synchronous=True)
    def _(strategy, coordinator):
        _, v = one_variable(strategy)

        def worker_fn():
            v.assign_add(np.ones(3))

        coordinator.schedule(worker_fn).fetch()
        assert v.numpy().tolist() == [1.0] * 3
        coordinator.join()
        assert coordinator.done()


def test_what_a_synchronous_strategy_refuses():
    resolver = Cast(1, 1, 1).resolver()
    with pytest.raises(ArgumentTypeError, match="synchronous='yes'"):
        ParameterServerStrategy(resolver, synchronous="yes")
    refusal = pytest.raises(UsageError, match="max_staleness=2 of a synchronous strategy")
    with ParameterServerStrategy(resolver, synchronous=True) as strategy, refusal:
        ClusterCoordinator(strategy, max_staleness=2)
