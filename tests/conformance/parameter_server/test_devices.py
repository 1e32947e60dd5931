"""Workers with several devices, and with unequal numbers of them."""

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from helpers.strategy.training import BATCH, MAKERS, STEPS, new_variables, step_gradients
from mpistrat import IndexedSlices, PerReplica, Variable, VariableAggregation
from mpistrat.coordinator import experimental_get_current_worker_index
from mpistrat.data import Dataset
from mpistrat.errors import BackendUnavailableError, ContextError, MismatchError, UsageError
from mpistrat.optimizers import SGD
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.testing.sets import takes_long

UNEQUAL = [["CPU:0", "CPU:1"], ["CPU:0"]]


@on_jobs
def test_run_calls_the_function_once_for_each_device_of_the_worker(layout):
    @on_chief(layout, worker_devices=UNEQUAL)
    def _(strategy, coordinator):
        assert strategy.num_replicas_in_sync == 1  # the chief itself

        def replica_fn():
            replica = mpistrat.get_replica_context()
            mine = np.float64(replica.replica_id_in_sync_group + 1)
            total = replica.all_reduce("SUM", mine)
            rows = replica.all_gather(np.full((1,), mine), axis=0)
            return replica.num_replicas_in_sync, replica.devices[0], float(total), rows.tolist()

        def worker_fn():
            found = strategy.experimental_local_results(strategy.run(replica_fn))
            counts = strategy.reduce("SUM", strategy.run(lambda: np.float32(1)), axis=None)
            return (
                experimental_get_current_worker_index(),
                list(zip(*found, strict=True)),
                float(counts),
            )

        found = coordinator.fetch([coordinator.schedule(worker_fn) for _ in range(20)])
        for worker, columns, counts in found:
            number = len(UNEQUAL[worker])
            names = [f"/job:worker/replica:0/task:{worker}/device:{d}" for d in UNEQUAL[worker]]
            ids = list(range(1, number + 1))
            assert columns == [
                (number,) * number,
                tuple(names),
                (float(sum(ids)),) * number,
                ([float(one) for one in ids],) * number,
            ]
            assert counts == number


@takes_long()
@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_unequal_workers_train_as_one_process_with_the_whole_batch(layout, parts, make):
    expected, optimizer = new_variables(), make()
    for step in range(STEPS):
        gradients = step_gradients(step, *expected, slice(None))
        optimizer.apply_gradients(zip(gradients, expected, strict=True))

    @on_chief(layout, FixedShardsPartitioner(parts), worker_devices=UNEQUAL)
    def _(strategy, coordinator):
        optimizer = make()
        with strategy.scope():
            variables = new_variables()
        optimizer.build(variables)

        def replica_fn(step):
            replica = mpistrat.get_replica_context()
            number, count = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
            rows = slice(number * BATCH // count, (number + 1) * BATCH // count)
            gradients = step_gradients(step, *variables, rows)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        def worker_fn(step):
            strategy.run(replica_fn, args=(step,))

        for step in range(STEPS):
            coordinator.schedule(worker_fn, args=(step,))
            coordinator.join()
        assert optimizer.iterations == STEPS
        for found, one in zip(variables, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), one.numpy(), rtol=1e-6, atol=1e-9)


@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
def test_rounds_sum_over_all_replicas_of_unequal_workers(layout, parts):
    @on_chief(layout, FixedShardsPartitioner(parts), synchronous=True, worker_devices=UNEQUAL)
    def _(strategy, coordinator):
        optimizer = SGD(1.0)
        with strategy.scope():
            v, rows = Variable(np.zeros(3)), Variable(np.zeros((5, 2)))
        optimizer.build([v, rows])
        assert strategy.num_replicas_in_sync == 3

        def replica_fn():
            replica = mpistrat.get_replica_context()
            number = replica.replica_id_in_sync_group
            some = IndexedSlices(np.full((1, 2), -1.0), [number], (5, 2))
            optimizer.apply_gradients([(np.full(3, -(10.0**number)), v), (some, rows)])
            return number, replica.num_replicas_in_sync

        def worker_fn():
            return strategy.experimental_local_results(strategy.run(replica_fn))

        def reduce():
            strategy.run(lambda: mpistrat.get_replica_context().all_reduce("SUM", 1.0))

        found = coordinator.fetch([coordinator.schedule(worker_fn) for _ in range(6)])
        assert found == [((0, 3), (1, 3)), ((2, 3),)] * 3
        coordinator.join()
        assert optimizer.iterations == 3
        np.testing.assert_allclose(v.numpy(), np.full(3, 333.0))
        assert rows.numpy().tolist() == [[3.0, 3.0]] * 3 + [[0.0, 0.0]] * 2
        coordinator.schedule(reduce)
        with pytest.raises(ContextError, match="workers do not wait for each other"):
            coordinator.join()


@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
def test_what_replicas_assign_becomes_one_by_the_rule_of_the_variable(layout, parts):
    @on_chief(layout, FixedShardsPartitioner(parts), worker_devices=[["CPU:0", "CPU:1"]] * 2)
    def _(strategy, coordinator):
        rules = VariableAggregation
        with strategy.scope():
            total, mean, first, none = (
                Variable(np.zeros(3), aggregation=one)
                for one in (rules.SUM, rules.MEAN, rules.ONLY_FIRST_REPLICA, rules.NONE)
            )
            whole = Variable(np.zeros(3, int), aggregation=rules.MEAN)

        def replica_fn():
            mine = mpistrat.get_replica_context().replica_id_in_sync_group + 1.0
            total.assign_add(np.full(3, mine))
            mean.assign([mine] * 3)
            first.assign_sub(np.full(3, mine))

        def worker_fn():
            strategy.run(replica_fn)
            none.assign_add(np.ones(3))  # outside of run: one change

        def without_a_rule():
            strategy.run(lambda: none.assign_add(np.ones(3)))

        def of_rows():
            strategy.run(lambda: total.scatter_add(IndexedSlices([1.0], [0])))

        def mean_of_integers():
            strategy.run(lambda: whole.assign([1, 1, 1]))

        for _ in range(10):
            coordinator.schedule(worker_fn)
        coordinator.join()
        found = [one.numpy().tolist() for one in (total, mean, first, none)]
        assert found == [[30.0] * 3, [1.5] * 3, [-10.0] * 3, [10.0] * 3]
        for refused in (without_a_rule, of_rows, mean_of_integers):
            coordinator.schedule(refused)
            with pytest.raises(UsageError, match=r"no rule|needs a rule|MEAN of integers"):
                coordinator.join()
        coordinator.schedule(worker_fn)  # the worker goes on
        coordinator.join()
        assert total.numpy().tolist() == [33.0] * 3


@on_jobs
def test_a_dataset_of_a_worker_is_cut_for_its_devices(layout):
    @on_chief(layout, worker_devices=UNEQUAL)
    def _(strategy, coordinator):
        def dataset_fn():
            here = mpistrat.get_strategy()
            return here.experimental_distribute_dataset(Dataset.range(8).batch(4))

        def worker_fn(iterator):
            batch = strategy.run(np.copy, args=(next(iterator),))
            worker = experimental_get_current_worker_index()
            return worker, strategy.experimental_local_results(batch)

        iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
        values = [coordinator.schedule(worker_fn, args=(iterator,)) for _ in range(2)]
        for worker, pieces in coordinator.fetch(values):
            assert [len(piece) for piece in pieces] == ([2, 2] if worker == 0 else [4])


@on_jobs
@pytest.mark.parametrize("synchronous", [False, True])
def test_a_dataset_that_a_function_distributes_is_cut_for_the_workers_devices(layout, synchronous):
    @on_chief(layout, synchronous=synchronous, worker_devices=[["CPU:0", "CPU:1"]] * 2)
    def _(strategy, coordinator):
        def worker_fn():
            here = mpistrat.get_strategy()
            (batch,) = here.experimental_distribute_dataset(Dataset.range(4).batch(4))
            return [piece.tolist() for piece in here.experimental_local_results(batch)]

        found = coordinator.fetch([coordinator.schedule(worker_fn) for _ in range(4)])
        assert found == [[[0, 1], [2, 3]]] * 4


@on_jobs
def test_values_for_other_numbers_of_replicas_are_refused(layout):
    @on_chief(layout, worker_devices=UNEQUAL)
    def _(strategy, coordinator):
        three = PerReplica([1.0, 2.0, 3.0])
        coordinator.schedule(lambda: strategy.run(float, args=(three,)))
        with pytest.raises(UsageError, match=r"a PerReplica of 3 values on [12] replicas"):
            coordinator.join()


@on_jobs
def test_replicas_that_assign_to_different_variables_are_told(layout):
    @on_chief(layout, worker_devices=[["CPU:0", "CPU:1"]] * 2)
    def _(strategy, coordinator):
        with strategy.scope():
            one, other = (Variable(0.0, aggregation=VariableAggregation.SUM) for _ in range(2))

        def is_first():
            return mpistrat.get_replica_context().replica_id_in_sync_group == 0

        def variables():
            (one if is_first() else other).assign(1.0)

        def methods():
            (one.assign if is_first() else one.assign_add)(1.0)

        for wrong, what in ((variables, "variables"), (methods, "ways")):
            coordinator.schedule(lambda wrong=wrong: strategy.run(wrong))
            with pytest.raises(UsageError, match=f"replicas gave different {what} to assign"):
                coordinator.join()
        assert (float(one), float(other)) == (0.0, 0.0)


@on_jobs
def test_devices_that_are_not_there_are_an_error_on_every_rank(layout):
    for devices, error, words in (
        ([["CPU:0"], ["TPU:0"]], UsageError, "'TPU:0' is no device"),
        ([["CPU:0"], ["CPU:0", "CPU:0"]], UsageError, "names a device twice"),
        ([["CPU:0"], ["GPU:0"]], BackendUnavailableError, r"need CuPy|finds no GPU"),
    ):
        with pytest.raises((error, MismatchError), match=words):
            on_chief(layout, worker_devices=devices)(lambda *_: None)


def test_devices_for_other_workers_than_there_are():
    resolver = Cast(1, 2, 1).resolver()
    with pytest.raises(UsageError, match="is for 1 workers, and the job has 2"):
        ParameterServerStrategy(resolver, worker_devices=[["CPU:0"]])
