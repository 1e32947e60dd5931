"""A training loop, and who plays which role in it."""

import json

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import Variable
from mpistrat.cluster_resolver import ClusterSpec, SimpleClusterResolver, TFConfigClusterResolver
from mpistrat.coordinator import ClusterCoordinator, experimental_get_current_worker_index
from mpistrat.data import Dataset
from mpistrat.errors import ArgumentTypeError, ClusterError, ContextError, UsageError


def test_the_communicator_of_the_chief_is_the_jobs_and_a_workers_its_own():
    @on_chief(Cast(1, 2, 1))
    def _(strategy, coordinator):
        def size_on_the_worker():
            return mpistrat.get_strategy().communicator.size

        assert strategy.communicator is strategy.job
        assert coordinator.schedule(size_on_the_worker).fetch() == 1
        assert mpistrat.get_strategy().communicator.size == 1  # the default strategy's


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
