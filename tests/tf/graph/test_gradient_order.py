"""Ranks that bring gradients in unequal orders are told."""

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import Case, some  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import MismatchError  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
CASES = some([Case(2, 1), Case(2, 2), Case(2, 1, "Central")])
RUNS = {"eager": lambda call: call, "graph": tf.function}
GRADIENTS = {
    "dense": {},
    "rows": {"rows": True},
    "clipped": {"global_clipnorm": 1e9},
}


def trained(strategy, run, order, rows=False, **options):
    """Train variables of one shape by gradients 1, 2 and 3; return what they are then."""
    with strategy.scope():
        variables = [keras.Variable(tf.zeros([3, 2]), name=name) for name in ("a", "b", "c")]
        optimizer = keras.optimizers.SGD(1.0, **options)
        optimizer.build(variables)

    def gradient(index):
        values = tf.fill([1, 2], float(index + 1))
        return (
            tf.IndexedSlices(values, tf.constant([0]), tf.constant([3, 2]))
            if rows
            else tf.tile(values, [3, 1])
        )

    def step():
        optimizer.apply_gradients([(gradient(i), variables[i]) for i in order])

    call = run(lambda: strategy.run(step))
    for _ in range(3):
        call()
    return [float(one.numpy()[0, 0]) for one in variables]


@pytest.mark.parametrize("options", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_in_another_order(case, run, options):
    strategy = case.ours()
    order = (0, 1, 2) if strategy.extended.bridge.rank == 0 else (0, 2, 1)
    with pytest.raises(MismatchError) as error:
        trained(strategy, RUNS[run], order, **options)
    text = str(error.value)
    assert "'b' (variable 1)" in text
    assert "'c' (variable 2)" in text
    strategy.close()


@pytest.mark.parametrize("options", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_in_any_order_that_is_one(case, run, options):
    strategy = case.ours()
    num = strategy.num_replicas_in_sync
    found = trained(strategy, RUNS[run], (2, 0, 1), **options)
    assert found == [-3.0 * num, -6.0 * num, -9.0 * num]
    strategy.close()


def test_only_the_first_sum_of_a_list_is_compared():
    strategy = Case(2, 1).ours()
    communicator = strategy.communicator
    trained(strategy, tf.function, (0, 1, 2))
    labels = [one.label or "" for one in communicator.records()]
    assert [one for one in labels if "gradients" in one] == ["gradients of variables 2 1 0"]
    strategy.close()
