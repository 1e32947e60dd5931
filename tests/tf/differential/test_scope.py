"""Scopes, names, configuration, as TensorFlow has them (B1 to B13, B110 to B113, E14)."""

import copy
import json
import threading

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.cases import (  # noqa: E402
    EVERYWHERE,
    MIRRORED,
    by_id,
    of_tensorflow,
    raised,
    same,
)
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import with_all  # noqa: E402

four_cpus()


@same()
def test_b01_current_inside_and_default_outside(s):
    default = tf.distribute.get_strategy()
    with s.scope() as given:
        theirs, current = of_tensorflow(s), tf.distribute.get_strategy
        found = [given is theirs, current() is theirs, tf.distribute.has_strategy()]
        with s.scope():
            found.append(current() is theirs)
    return [*found, tf.distribute.get_strategy() is default, tf.distribute.has_strategy()]


@same()
def test_b01_scopes_of_two_strategies_do_not_nest(s):
    with s.scope():
        return raised(lambda: tf.distribute.OneDeviceStrategy("CPU:1").scope().__enter__())


@same()
def test_b02_inside_is_the_cross_replica_context(s):
    found = [tf.distribute.in_cross_replica_context()]
    with s.scope():
        found += [tf.distribute.in_cross_replica_context()]
        found += [tf.distribute.get_replica_context() is None]
    return found


@same()
def test_b03_creation_is_intercepted(s):
    seen = []

    def creator(next_creator, **kwargs):
        seen.append(kwargs.get("name"))
        return next_creator(**kwargs)

    with tf.variable_creator_scope(creator), s.scope():
        outer = tf.Variable(1.0, name="a")
    with s.scope(), tf.variable_creator_scope(creator):
        inner = tf.Variable(2.0, name="b")
    return [seen[0], seen[-1], outer.numpy(), inner.numpy()]


@same()
def test_b04_b05_b06_names(s):
    outside = tf.Variable(1.0)
    with s.scope():
        first, second = tf.Variable(2.0), tf.Variable([3], name="second", trainable=False)
    return [
        outside.name,
        type(outside).__name__,
        [v.name for v in (first, second)],
        [(v.dtype.name, tuple(v.shape), v.trainable) for v in (first, second)],
        [first, second],
    ]


@pytest.mark.parametrize("layout", MIRRORED, ids=str)
def test_b06_names_of_copies(layout):
    # A rank names its own copies, as each worker of MultiWorkerMirroredStrategy does.
    with layout.ours() as s, s.scope():
        copies = s.experimental_local_results(tf.Variable(1.0, name="v"))
        want = ["v:0", "v/replica_1:0", "v/replica_2:0"][: layout.devices]
        assert [copy.name for copy in copies] == want


@same([case for case in EVERYWHERE if case.ranks == 1])
def test_b07_repr(s):
    with s.scope():
        variable = tf.Variable(1.0, name="shown")
    return [repr(variable), str(variable), repr(by_id(s)), str(by_id(s))]


@pytest.mark.parametrize("layout", [c for c in MIRRORED if c.ranks > 1], ids=str)
def test_b07_repr_on_ranks(layout):
    # A line for each replica of this rank.
    with layout.ours() as s, s.scope():
        text = repr(tf.Variable(1.0, name="shown"))
        assert text.startswith("MirroredVariable:{\n  0: <tf.Variable 'shown:0' shape=()")
        assert text.count("<tf.Variable") == layout.devices


@same()
def test_b08_variables_work_outside(s):
    with s.scope():
        variable = tf.Variable([1.0, 2.0])
    found = [variable.numpy(), (variable + 1.0), tf.reduce_sum(variable), variable.read_value()]
    variable.assign([3.0, 4.0])
    variable.assign_add([1.0, 1.0])
    variable.assign_sub([0.5, 0.5])
    return [*found, variable.numpy(), variable, tf.function(lambda: variable * 2.0)()]


@same()
def test_b09_run_and_reduce_enter_by_themselves(s):
    inside = s.run(lambda: tf.distribute.get_strategy() is of_tensorflow(s))
    return [inside, s.reduce("SUM", by_id(s), axis=None)]


@same()
def test_b12_other_threads_are_not_in_the_scope(s):
    found = []
    with s.scope():
        thread = threading.Thread(target=lambda: found.append(tf.distribute.has_strategy()))
        thread.start()
        thread.join()
    return found


@same()
def test_b13_a_scope_does_not_distribute_computation(s):
    calls = []
    with s.scope():
        calls.append(1)
        value = tf.constant(2.0) * 3.0
    return [len(calls), value]


@same()
def test_b110_b113_around_the_edges(s):
    config = tf.compat.v1.ConfigProto()
    updated = s.update_config_proto(config)
    return [
        isinstance(updated, tf.compat.v1.ConfigProto),
        updated is config,
        s.num_replicas_in_sync,
        isinstance(of_tensorflow(s), tf.distribute.Strategy),
    ]


@pytest.mark.parametrize("layout", EVERYWHERE, ids=str)
def test_b113_older_members(layout):
    # TensorFlow 2.21 has no such members any more.
    with layout.ours() as s:
        assert s.experimental_initialize() == s.experimental_finalize() == []
        assert s.experimental_run_v2(lambda x: x + 1, (1,)) == 2


@pytest.mark.parametrize("layout", EVERYWHERE, ids=str)
def test_b110_b111_cluster_resolver(layout):
    with layout.ours() as s:
        if layout.kind != "MultiWorker":
            assert s.cluster_resolver is None
            return
        resolver = s.cluster_resolver
        assert (resolver.task_type, resolver.task_id) == ("worker", s.communicator.rank)
        assert len(resolver.cluster_spec().as_dict()["worker"]) == layout.ranks


def test_e02_role_from_tf_config(monkeypatch):
    cluster = {"worker": ["one:1", "two:2"], "ps": ["three:3"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with distribute.MultiWorkerMirroredStrategy() as s:
        resolver = s.cluster_resolver
        assert (resolver.task_type, resolver.task_id) == ("worker", 1)
        assert resolver.cluster_spec().as_dict() == cluster


@pytest.mark.mpi(ranks=2)
def test_b110_the_resolver_given_is_the_resolver():
    given = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": ["one:1", "two:2"]}), task_type="worker", task_id=1
    )
    with distribute.MultiWorkerMirroredStrategy(given) as s:
        assert s.cluster_resolver is given


@pytest.mark.mpi(ranks=2)
def test_the_communicator_of_one_device_is_of_this_process_alone():
    with distribute.OneDeviceStrategy("CPU:0") as strategy:
        communicator = strategy.communicator
        assert (communicator.rank, communicator.size) == (0, 1)
        assert communicator.allreduce(3.0) == 3.0
        assert strategy.communicator is communicator


@pytest.mark.mpi(ranks=[1, 2] if with_all() else 2)
def test_a_strategy_cannot_be_multiplied():
    """TensorFlow's own cannot be copied once it was used in a tf.function."""
    assert copy.deepcopy(one := distribute.OneDeviceStrategy("CPU:0")) is one
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        assert copy.deepcopy(strategy) is strategy


def rank_of(s):
    if hasattr(s, "communicator"):
        return s.communicator.rank
    return s.cluster_resolver.task_id if s.cluster_resolver else 0


@same()
def test_extended(s):
    e = s.extended
    return [
        isinstance(e, tf.distribute.StrategyExtended),
        e.should_checkpoint == (rank_of(s) == 0),
        len(e.worker_devices) if s.num_replicas_in_sync == 1 else 0,
        e.experimental_require_static_shapes,
    ]


@same()
def test_extended_variables_know_where_they_belong(s):
    with s.scope():
        variable = tf.Variable(1.0)
        with s.extended.colocate_vars_with(variable):
            beside = tf.Variable(2.0)
    with s.scope():
        found = [s.extended.variable_created_in_scope(v) for v in (variable, tf.constant(1.0))[:1]]
        return [*found, s.extended.variable_created_in_scope(tf.Variable(1.0)), beside]
