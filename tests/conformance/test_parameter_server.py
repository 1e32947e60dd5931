"""ParameterServerStrategy and its coordinator: on ranks, and with threads in the roles."""

import json
import threading
import time

import numpy as np
import pytest

import mpistrat
from mpistrat import IndexedSlices, Variable
from mpistrat.cluster_resolver import (
    ClusterSpec,
    SimpleClusterResolver,
    TFConfigClusterResolver,
)
from mpistrat.coordinator import (
    ClusterCoordinator,
    PerWorkerValues,
    RemoteValue,
    experimental_get_current_worker_index,
)
from mpistrat.data import Dataset
from mpistrat.errors import (
    ArgumentTypeError,
    ClosedError,
    ClusterError,
    ContextError,
    CoordinatorError,
    UsageError,
)
from mpistrat.testing.coordination import ALL_JOBS, JOBS, Cast, on_chief

on_jobs = pytest.mark.parametrize("layout", JOBS, ids=str)
PS = "/job:ps/replica:0/task:{}/device:CPU:0"


class BrokenError(Exception):
    """Pickles, but not back."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_value_error():
    raise ValueError("said by a function")


# ----------------------------------------------------------------------------------- variables


def test_e19_equal_variables_go_round_the_ps():
    @on_chief(Cast(1, 1, 3))
    def _(strategy, coordinator):
        v1 = Variable(0.0)
        with strategy.scope():
            others = [Variable(float(i)) for i in range(2, 6)]
        assert not hasattr(v1, "device")
        assert [v.device for v in others] == [PS.format(i) for i in (0, 1, 2, 0)]
        assert [float(v) for v in others] == [2.0, 3.0, 4.0, 5.0]


@on_jobs
def test_b83_placed_by_bytes(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            large = Variable(np.zeros(100))
            small = [Variable(np.zeros(10)) for _ in range(3)]
            with strategy.extended.colocate_vars_with(large):
                beside = Variable(1.0)
        assert large.device == beside.device == PS.format(0)
        assert [v.device for v in small] == [PS.format(1)] * 3
        assert strategy.extended.parameter_devices == (PS.format(0), PS.format(1))


@on_jobs
def test_b80_chief_and_workers_read_and_change_variables(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros((2, 3)), name="v", trainable=False)
        assert (v.name, v.shape, v.dtype, v.trainable) == ("v:0", (2, 3), np.float64, False)

        def change(row, value):
            before = v.numpy()
            v.assign_add(np.full((2, 3), value))
            v.scatter_update(IndexedSlices(np.full((1, 3), 10.0 * value), [row]))
            return before, v + 0.0, v.dtype, strategy.extended.variable_created_in_scope(v)

        before, after, dtype, is_ours = coordinator.schedule(change, args=(1, 2.0)).fetch()
        assert before.tolist() == [[0.0] * 3] * 2
        assert after.tolist() == [[2.0] * 3, [20.0] * 3]
        assert dtype == np.float64
        assert is_ours
        v.assign_sub(np.ones((2, 3)))
        v.scatter_add(IndexedSlices(np.ones((2, 3)), [0, 0]))
        v.scatter_sub(IndexedSlices(np.ones((1, 3)), [1]))
        assert v.numpy().tolist() == [[3.0] * 3, [18.0] * 3]
        assert v.sparse_read([1, 1, 0])[:, 0].tolist() == [18.0, 18.0, 3.0]
        kept = v.value()
        v.assign(np.ones((2, 3)))
        assert kept[0, 0] == 3.0
        with pytest.raises(ValueError, match="read-only"):
            kept[0, 0] = 1.0


@pytest.mark.parametrize("layout", ALL_JOBS, ids=str)
def test_b80_changes_of_all_workers_count(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            total = Variable(np.zeros(1000))
            table = Variable(np.zeros((50, 4), np.float32))

        def add(i):
            total.assign_add(np.full(1000, float(i)))
            table.scatter_add(IndexedSlices(np.ones((3, 4), np.float32), [i % 50, 7, 7]))

        for i in range(200):
            coordinator.schedule(add, kwargs={"i": i})
        coordinator.join()
        assert (total.numpy() == sum(range(200))).all()
        expected = np.full((50, 4), 4.0)
        expected[7] += 400
        np.testing.assert_array_equal(table.numpy(), expected)


@on_jobs
def test_what_does_not_fit_is_refused_where_it_is_said(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros((4, 2)), name="v")
            scalar = Variable(1)
        for call in (
            lambda: v.assign(np.zeros(3)),
            lambda: v.assign_add("x"),
            lambda: scalar.assign(0.5),
            lambda: v.sparse_read([4]),
            lambda: v.sparse_read([0.5]),
            lambda: v.scatter_add(IndexedSlices(np.zeros((1, 3)), [0])),
            lambda: v.scatter_update(IndexedSlices(np.zeros((1, 2)), [-1])),
            lambda: scalar.sparse_read([0]),
            v.live,
            lambda: strategy.extended.colocate_vars_with(Variable(0.0)).__enter__(),
        ):
            with pytest.raises(UsageError):
                call()
        assert v.numpy().tolist() == [[0.0, 0.0]] * 4

        def try_there():
            with pytest.raises(UsageError, match=r"shape \(3,\) to variable 'v:0'"):
                v.assign(np.zeros(3))
            with pytest.raises(ContextError, match="make it on the chief"):
                Variable(1.0)

        coordinator.schedule(try_there).fetch()


@on_jobs
def test_variables_that_nobody_holds_are_freed(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros(10))
        key, ps = v.label.key, v.label.ps
        del v
        client = strategy.extended.client
        with pytest.raises(UsageError, match=f"no variable {key}"):
            client.ask(ps, "read", key, -1)


@pytest.mark.parametrize("layout", ALL_JOBS, ids=str)
def test_large_values_travel(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        value = np.arange(3_000_000.0)
        with strategy.scope():
            v = Variable(value)

        def work(delta):
            v.assign_add(delta)
            return v.numpy() * 2

        result = coordinator.schedule(work, args=(value,)).fetch()
        np.testing.assert_array_equal(result, value * 4)
        np.testing.assert_array_equal(v.numpy(), value * 2)


# ------------------------------------------------------------------------------------ schedule


@on_jobs
def test_b84_schedule_returns_at_once_and_join_waits(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            go = Variable(0)

        def wait():
            while int(go) == 0:
                time.sleep(0.001)
            return experimental_get_current_worker_index()

        values = [coordinator.schedule(wait) for _ in range(2)]
        assert not coordinator.done()
        assert all(isinstance(value, RemoteValue) for value in values)
        go.assign(1)
        coordinator.join()
        assert coordinator.done()
        assert sorted(coordinator.fetch(values)) == [0, 1]


@on_jobs
def test_fetch_takes_nests(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        value = coordinator.schedule(lambda x: x * 2, args=(np.arange(3),))
        nest = {"a": [value, 1], "b": (value, "text")}
        found = coordinator.fetch(nest)
        assert found["a"][0].tolist() == [0, 2, 4]
        assert found["a"][1] == 1
        assert found["b"][1] == "text"
        assert value.get() is value.fetch()


@on_jobs
def test_many_functions_run_once_each(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        values = [coordinator.schedule(lambda x=i: x, args=()) for i in range(50)]
        values += [coordinator.schedule(abs, args=(-i,)) for i in range(2000)]
        coordinator.join()
        assert coordinator.fetch(values) == [*range(50), *range(2000)]


@on_jobs
def test_there_is_one_coordinator_for_a_strategy(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        assert ClusterCoordinator(strategy) is coordinator
        assert coordinator.strategy is strategy
        with pytest.raises(ArgumentTypeError, match="expected a ParameterServerStrategy"):
            ClusterCoordinator(mpistrat.OneDeviceStrategy("CPU:0"))


@on_jobs
def test_what_a_function_captures_is_frozen_at_its_first_schedule(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        kept = [1]

        class Adder:
            def __init__(self):
                self.number = 10

            def add(self, x):
                return self.number + x

        adder = Adder()
        before = coordinator.fetch(
            [coordinator.schedule(lambda: kept), coordinator.schedule(adder.add, args=(1,))]
        )
        fn = lambda: list(kept)  # noqa: E731
        assert coordinator.schedule(fn).fetch() == [1]
        kept.append(2)
        adder.number = 20
        assert coordinator.schedule(fn).fetch() == [1]
        assert coordinator.schedule(adder.add, args=(1,)).fetch() == before[1] == 11


@on_jobs
def test_results_may_be_of_the_programs_own_classes(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        class Pair:
            def __init__(self, left, right):
                self.left, self.right = left, right

        def swap(pair):
            return Pair(pair.right, pair.left)

        found = coordinator.schedule(swap, args=(Pair(1, 2),)).fetch()
        assert isinstance(found, Pair)
        assert (found.left, found.right) == (2, 1)


@on_jobs
def test_a_worker_is_one_replica_of_its_own(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        assert strategy.num_replicas_in_sync == 1

        def work():
            def replica_fn(x):
                replica = mpistrat.get_replica_context()
                return replica.replica_id_in_sync_group, replica.num_replicas_in_sync, x

            is_current = mpistrat.get_strategy() is strategy
            result = strategy.run(replica_fn, args=(5,))
            return is_current, result, float(strategy.reduce("SUM", 2.0, axis=None))

        assert coordinator.schedule(work).fetch() == (True, (0, 1, 5), 2.0)


def test_the_worker_index_is_for_workers_only():
    with pytest.raises(ContextError, match="outside of a function"):
        experimental_get_current_worker_index()


@on_jobs
@pytest.mark.parametrize("wrong", [3, None, "text"])
def test_only_functions_can_be_scheduled(layout, wrong):
    @on_chief(layout)
    def _(strategy, coordinator):
        with pytest.raises(TypeError, match="expected a function"):
            coordinator.schedule(wrong)
        with pytest.raises(TypeError, match="list or tuple"):
            coordinator.schedule(abs, args=1)
        with pytest.raises(TypeError, match="cannot be sent"):
            coordinator.schedule(print, args=(threading.Lock(),))
        assert coordinator.done()


@on_jobs
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_with_bounded_staleness_a_function_sees_what_those_before_it_changed(layout, bound):
    @on_chief(layout, max_staleness=bound)
    def _(strategy, coordinator):
        with strategy.scope():
            done = Variable(np.zeros(60))
        assert coordinator.max_staleness == bound

        def work(number):
            seen = done.numpy()
            time.sleep(0.003 if number % 3 == 0 else 0.0)
            done.scatter_add(IndexedSlices([1.0], [number]))
            return seen

        values = [coordinator.schedule(work, args=(number,)) for number in range(60)]
        for number, seen in enumerate(coordinator.fetch(values)):
            assert seen[: max(0, number - bound)].all(), (number, seen)
            assert not seen[number + bound + 1 :].any(), (number, seen)
        assert ClusterCoordinator(strategy) is coordinator
        with pytest.raises(UsageError, match="expected the same"):
            ClusterCoordinator(strategy, max_staleness=bound + 1)


@pytest.mark.parametrize("wrong", [-1, 0.5, True, "1"])
def test_a_bound_of_staleness_is_a_number(wrong):
    @on_chief(Cast(1, 1, 1))
    def _(strategy, coordinator):
        with pytest.raises(UsageError, match="max_staleness"):
            ClusterCoordinator(strategy, max_staleness=wrong)


# -------------------------------------------------------------------------------------- errors


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


# ------------------------------------------------------------------------------ per-worker values


@on_jobs
def test_b85_each_worker_has_a_dataset_and_iter_starts_it_again(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        def dataset_fn():
            first = 100 * experimental_get_current_worker_index()
            return Dataset.range(first, first + 1000).batch(2)

        dataset = coordinator.create_per_worker_dataset(dataset_fn)

        def work(iterator):
            return np.asarray(next(iterator)).tolist()

        for _ in range(2):
            iterator = iter(dataset)
            found = coordinator.fetch(
                [coordinator.schedule(work, args=(iterator,)) for _ in "abc"]
            )
            firsts = sorted(batch[0] for batch in found)
            expected = {0: [0, 2, 4], 1: [0, 2, 100], 2: [0, 100, 102], 3: [100, 102, 104]}
            assert firsts == expected[sum(one >= 100 for one in firsts)]
            with pytest.raises(ContextError, match="on the chief"):
                next(iterator)


@on_jobs
def test_an_iterators_end_is_an_error_of_the_function(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset([1, 2]))

        def take_all(iterator):
            return [next(iterator) for _ in range(3)]

        coordinator.schedule(take_all, args=(iterator,))
        with pytest.raises(StopIteration):
            coordinator.join()


@on_jobs
def test_an_error_of_a_dataset_function_is_one_of_the_job(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        coordinator.create_per_worker_dataset(raise_value_error)
        with pytest.raises(ValueError, match="said by a function"):
            coordinator.join()


@on_jobs
def test_per_worker_values(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        values = PerWorkerValues([["zero"], ["one"]])
        assert values.values == (["zero"], ["one"])

        def work(pair, plain):
            return experimental_get_current_worker_index(), pair["x"], plain

        found = coordinator.schedule(work, args=({"x": values}, 5)).fetch()
        assert found in [(0, ["zero"], 5), (1, ["one"], 5)]
        with pytest.raises(UsageError, match="one for each of the 2 workers"):
            coordinator.schedule(work, args=({"x": PerWorkerValues([1])}, 5))
        with pytest.raises(UsageError, match="expected a list"):
            PerWorkerValues(3)


# --------------------------------------------------------------------------------------- roles


def test_e15_training_loop():
    """Linear regression, by workers that each follow their own gradient."""

    @on_chief(Cast(1, 2, 2))
    def _(strategy, coordinator):
        with strategy.scope():
            weights, bias = Variable(np.zeros(3)), Variable(0.0)

        def dataset_fn():
            random = np.random.default_rng(experimental_get_current_worker_index())
            x = random.normal(size=(256, 3))
            return Dataset.from_tensor_slices((x, x @ [1.0, 2.0, 3.0] + 4.0)).repeat().batch(64)

        def worker_fn(iterator):
            def replica_fn(batch):
                x, y = batch
                error = x @ weights.value() + float(bias) - y
                weights.assign_sub(0.05 * x.T @ error / len(y))
                bias.assign_sub(0.05 * error.mean())

            strategy.run(replica_fn, args=(next(iterator),))

        dataset = coordinator.create_per_worker_dataset(dataset_fn)
        for _ in range(3):
            iterator = iter(dataset)
            for _ in range(100):
                coordinator.schedule(worker_fn, args=(iterator,))
            coordinator.join()
        np.testing.assert_allclose(weights.numpy(), [1.0, 2.0, 3.0], atol=0.01)
        np.testing.assert_allclose(float(bias), 4.0, atol=0.01)


@on_jobs
def test_e18_one_program_branches_on_its_role(layout):
    """The other ranks' servers are made as in E16, of a cluster spec and a task."""
    resolver = layout.resolver()
    if resolver.task_type in ("worker", "ps"):
        server = mpistrat.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
        )
        server.join()
        assert server.target == f"mpistrat://{resolver.task_type}/{resolver.task_id}"
    else:
        with mpistrat.experimental.ParameterServerStrategy(resolver) as strategy:
            coordinator = mpistrat.experimental.coordinator.ClusterCoordinator(strategy)
            assert coordinator.schedule(abs, args=(-1,)).fetch() == 1


def test_e17_roles_from_tf_config(monkeypatch):
    """Without a launcher the chief's process plays all roles that TF_CONFIG names."""
    cluster = {"chief": ["c:1"], "ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1", "w2:1"]}

    def be(kind, index):
        task = {"type": kind, "index": index}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
        return TFConfigClusterResolver()

    resolver = be("ps", 1)
    assert (resolver.task_type, resolver.task_id) == ("ps", 1)
    with pytest.raises(ContextError, match="Server of ps 1 in a job of one rank"):
        mpistrat.Server(resolver)
    with mpistrat.ParameterServerStrategy(be("chief", 0)) as strategy:
        assert "3 workers, 2 ps" in repr(strategy)
        assert ClusterCoordinator(strategy).num_workers == 3


def test_b82_the_resolver_says_the_role():
    spec = ClusterSpec({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]})
    with pytest.raises(ClusterError, match="is worker 0; the chief makes"):
        mpistrat.ParameterServerStrategy(SimpleClusterResolver(spec, task_type="worker"))
    with pytest.raises(ContextError, match="mpirun"):
        mpistrat.Server(spec, job_name="ps", task_index=0)
    with pytest.raises(UsageError, match="job_name"):
        mpistrat.Server(spec)
    with pytest.raises(ArgumentTypeError, match="expected a ClusterResolver"):
        mpistrat.ParameterServerStrategy(None)
