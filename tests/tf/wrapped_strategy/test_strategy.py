"""Our strategy over TensorFlow's: slices that are summed, and one rank that drives."""

import functools
import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.cases import mirrored_cpus as mirrored  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat import errors  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=60)
SOME = pytest.mark.mpi(ranks=2, timeout_s=30)
WAYS = pytest.mark.parametrize("driver", [None, 0, -1] if with_all() else [None, 0])
X = np.random.default_rng(0).normal(size=(48, 4))
Y = X.sum(1, keepdims=True)


def backed(driver, comm_size, make=mirrored):
    return TFBackedStrategy(make, driver=driver if driver is None else driver % comm_size)


def size():
    from mpi4py import MPI

    return MPI.COMM_WORLD.size


def replicas(s, driver):
    return 2 * (s.communicator.size if driver is None else 1)


@RANKS
@WAYS
def test_values_over_all_replicas(driver):
    with backed(driver, size()) as s:
        n = replicas(s, driver)
        assert s.num_replicas_in_sync == n
        values = s.experimental_distribute_values_from_function(
            lambda context: tf.constant([context.replica_id_in_sync_group, 1.0])
        )
        doubled = s.run(lambda x: 2 * x, args=(values,))
        ids = n * (n - 1)
        assert s.reduce("SUM", doubled, axis=None).numpy().tolist() == [ids, 2 * n]
        assert s.reduce("SUM", doubled, axis=0).numpy() == ids + 2 * n
        assert s.reduce("MEAN", doubled, axis=0).numpy() == (ids + 2 * n) / (2 * n)
        gathered = s.gather(doubled, axis=0).numpy()
        assert gathered.tolist() == [float(x) for i in range(n) for x in (2 * i, 2)]
        assert len(s.experimental_local_results(doubled)) == (2 if s.is_driver else 0)


@takes_long()
@RANKS
@WAYS
def test_datasets_are_spread_over_all_replicas(driver):
    with backed(driver, size()) as s:
        dataset = tf.data.Dataset.range(24).batch(12)
        sums = []
        for batch in s.experimental_distribute_dataset(dataset):
            rows = s.run(tf.function(lambda x: tf.cast(x, tf.float32)), args=(batch,))
            sums.append(float(s.reduce("SUM", rows, axis=0)))
        assert sums == [66.0, 210.0]

        def pipeline(context):
            assert context.num_replicas_in_sync == replicas(s, driver)
            return tf.data.Dataset.from_tensors(context.input_pipeline_id).repeat(4).batch(1)

        found = s.distribute_datasets_from_function(pipeline)
        ids = [s.gather(batch, axis=0).numpy().tolist() for batch in found]
        pipelines = range(s.communicator.size if driver is None else 1)
        assert ids == [[i for i in pipelines for _ in range(2)]] * 2


@RANKS
@pytest.mark.parametrize("driver", [None, 0, -1] if with_all() else [None])
def test_gradients_are_summed_over_all_replicas(driver):
    with backed(driver, size()) as s:
        with s.scope():
            weight = tf.Variable(tf.ones([]) * (1 + s.communicator.rank), name="weight")

        @tf.function
        def step():
            def fn():
                context = tf.distribute.get_replica_context()
                own = tf.cast(context.replica_id_in_sync_group, tf.float32)
                with tf.GradientTape() as tape:
                    loss = weight * own
                gradient = context.all_reduce("SUM", tape.gradient(loss, weight))
                weight.assign_sub(gradient)
                return gradient

            return s.run(fn)

        total = replicas(s, driver) * (replicas(s, driver) - 1) / 2
        gradient = s.on_driver(lambda: s.reduce("MEAN", step(), axis=None))
        assert float(gradient) == total
        first = 1 if driver is None else 1 + driver % s.communicator.size
        assert s.on_driver(lambda: float(weight.numpy())) == first - total


def fitted(scope, **how):
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    with scope:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    history = model.fit(X, Y, batch_size=12, epochs=2, verbose=0, shuffle=False, **how)
    predicted = model.predict(X, verbose=0)
    numbers = *history.history["loss"], model.evaluate(X, Y, verbose=0)
    return [*model.get_weights(), predicted, numbers]


@functools.cache
def in_one_process():
    return fitted(tf.device("CPU:0"))


@RANKS
@takes_long()
@WAYS
def test_keras_trains_as_in_one_process(driver):
    with backed(driver, size()) as s:
        found = fitted(s.scope())
        for mine, wanted in zip(found, in_one_process(), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else [2], timeout_s=60)
def test_a_model_that_is_built_by_fit_has_weights_on_all_ranks():
    with TFBackedStrategy(mirrored, driver=0) as s:
        with s.scope():
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        assert set(model.fit(X, Y, verbose=0).history) == {"loss"}
        told = s.communicator.allgather_object([one.tobytes() for one in model.get_weights()])
        assert len(told[0]) == 2
        assert told[1:] == told[:-1]


# ---------------------------------------------------------------------------------- who drives


@SOME
@pytest.mark.parametrize(
    "where", ["reduce", "on_driver", "dataset", "making"] if with_all() else ["on_driver"]
)
def test_errors_of_the_driving_rank_reach_all(where):
    def broken():
        raise OSError(f"no {where}")

    def rows(_):
        return tf.data.Dataset.range(4).map(lambda x: tf.numpy_function(broken, [], tf.int64))

    if where == "making":
        with pytest.raises(OSError, match="no making"):
            TFBackedStrategy(broken, driver=1)
        return
    with TFBackedStrategy(mirrored, driver=1) as s:
        calls = {
            "reduce": lambda: s.reduce("MEDIAN", s.run(lambda: 1.0), axis=None),
            "on_driver": lambda: s.on_driver(broken),
            "dataset": lambda: list(s.distribute_datasets_from_function(rows)),
        }
        with pytest.raises((OSError, ValueError, tf.errors.OpError)) as caught:
            calls[where]()
        told = s.communicator.allgather_object((type(caught.value).__name__, str(caught.value)))
        assert told[0] == told[1]
        assert where in str(caught.value)
        cause = str(caught.value.__cause__)
        assert s.is_driver or "rank 1, which drives, raised this in" in cause


@takes_long()
@SOME
def test_an_error_of_a_function_on_the_driving_rank_ends_the_wait():
    s = TFBackedStrategy(mirrored, driver=0)

    def broken():
        raise OSError("a disk")

    if s.is_driver:
        with pytest.raises(OSError, match="a disk"):
            s.run(broken)
    else:
        with pytest.raises(errors.PeerLostError, match="a disk"):
            s.reduce("SUM", s.run(broken), axis=None)
    with pytest.raises(errors.CommunicationError):
        s.communicator.barrier()
    drop(s)


@takes_long()
@SOME
def test_ranks_that_wait_sleep():
    with TFBackedStrategy(mirrored, driver=0) as s:
        start = time.process_time()
        assert s.on_driver(lambda: time.sleep(1.5)) is None
        assert time.process_time() - start < 0.25


@SOME
def test_what_is_elsewhere_says_so():
    with TFBackedStrategy(mirrored, driver=0) as s:
        value = s.run(lambda: tf.constant(1.0))
        if not s.is_driver:
            for use in [lambda: float(value), lambda: value + 1, lambda: list(value)]:
                with pytest.raises(UsageError, match="is on rank 0 only, which drives"):
                    use()
            again = tf.function(lambda x: x)(value)
            assert s.experimental_local_results(again) == ()


@takes_long()
@SOME
def test_collectives_of_a_driver_are_no_part_of_a_function():
    with TFBackedStrategy(mirrored, driver=0) as s:
        batches = iter(s.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(4)))

        @tf.function
        def step(batches):
            return s.reduce("SUM", s.run(tf.reduce_sum, args=(next(batches),)), axis=None)

        with pytest.raises(UsageError, match=r"inside of a tf.function, where rank 0 drives"):
            step(batches)
        assert s.on_driver(step, batches).numpy() == 6


@SOME
def test_results_are_pickled_once():
    pickles = []

    class Counted:
        def __reduce__(self):
            pickles.append(self)
            return int, (7,)

    with TFBackedStrategy(mirrored, driver=0) as s:
        found = s.on_driver(Counted)
        assert len(pickles) == int(s.is_driver)
        assert s.is_driver or found == 7


@takes_long()
@SOME
def test_results_that_cannot_be_sent():
    with (
        TFBackedStrategy(mirrored, driver=0) as s,
        pytest.raises(errors.ArgumentTypeError, match="cannot be sent to the other ranks"),
    ):
        s.on_driver(lambda: (i for i in range(3)))


# ---------------------------------------------------------------------------------- bad input


@SOME
@pytest.mark.parametrize(
    ("make", "driver", "text"),
    [
        (lambda: 3, None, "expected a tf.distribute.Strategy"),
        (lambda: 3, 0, "expected a tf.distribute.Strategy"),
        (mirrored, 2, "driver by rank: .2, 2.; expected the same on all"),
        (mirrored, True, "driver by rank"),
        (lambda: tf.distribute.OneDeviceStrategy("CPU:0"), None, "on each of several ranks"),
    ],
)
def test_wrong_arguments(make, driver, text):
    with pytest.raises(UsageError, match=text):
        TFBackedStrategy(make, driver=driver)


@takes_long()
@SOME
def test_ranks_that_differ():
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    with pytest.raises(UsageError, match=r"driver by rank: \[0, None\]"):
        TFBackedStrategy(mirrored, driver=[0, None][rank])
    with pytest.raises(UsageError, match=r"numbers of local devices by rank: \[1, 2\]"):
        TFBackedStrategy(mirrored(1 + rank))
    with (
        TFBackedStrategy(mirrored()) as s,
        pytest.raises(UsageError, match="is a slice, or over all ranks, already"),
    ):
        TFBackedStrategy(s.tf_strategy)


@SOME
def test_the_error_of_one_slice_is_an_error_of_all():
    from mpi4py import MPI

    def make():
        if MPI.COMM_WORLD.rank == 1:
            raise OSError("no disk")
        return mirrored()

    kind = (errors.ClusterError, OSError)[MPI.COMM_WORLD.rank]
    with pytest.raises(kind, match="no disk"):
        TFBackedStrategy(make)
    others = mirrored() if MPI.COMM_WORLD.rank == 1 else tf.distribute.get_strategy()
    with pytest.raises(UsageError, match="on each of several ranks"):
        TFBackedStrategy(others)


def test_one_that_is_not_made_yet_has_nothing():
    bare = TFBackedStrategy.__new__(TFBackedStrategy)
    assert not any(hasattr(bare, name) for name in ("tf_strategy", "communicator", "extended"))


@takes_long()
@SOME
@pytest.mark.parametrize("driver", [None, 0])
def test_after_close(driver):
    s = TFBackedStrategy(mirrored, driver=driver)
    s.close()
    s.close()
    for call in [lambda: s.run(tf.zeros), lambda: s.reduce("SUM", 1.0, axis=None)]:
        with pytest.raises(errors.ClosedError, match="was closed"):
            call()


def test_any_strategy_in_one_process():
    for make in [
        lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
        lambda: tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]),
        tf.distribute.get_strategy,
    ]:
        with TFBackedStrategy(make) as s:
            assert s.num_replicas_in_sync == 1
            assert s.reduce("SUM", s.run(lambda: tf.constant(2.0)), axis=None).numpy() == 2.0
            with s.scope():
                assert tf.distribute.get_strategy() is s.tf_strategy


def test_errors_of_tensorflow_are_of_both_families():
    with TFBackedStrategy(mirrored) as s:
        value = s.run(lambda: tf.constant([1.0]))
        with pytest.raises(UsageError, match="reduce by MirroredStrategy of TensorFlow") as caught:
            s.reduce("MEDIAN", value, axis=None)
        assert isinstance(caught.value, ValueError)
        with pytest.raises(UsageError) as caught:
            s.reduce("SUM", value, axis=7)
        assert isinstance(caught.value, tf.errors.InvalidArgumentError)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (tf.errors.UnavailableError, errors.PeerLostError),
        (tf.errors.AbortedError, errors.PeerLostError),
        (tf.errors.DeadlineExceededError, errors.CommunicationTimeoutError),
    ],
)
def test_a_lost_cluster_is_told_from_errors_of_functions(theirs, ours):
    def fn():
        raise theirs(None, None, "socket closed")

    with TFBackedStrategy(lambda: tf.distribute.OneDeviceStrategy("CPU:0")) as s:
        with pytest.raises(ours, match=r"OneDeviceStrategy of Tens.*socket closed") as caught:
            s.run(fn)
        assert isinstance(caught.value, theirs)
