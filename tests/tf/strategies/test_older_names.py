"""TensorFlow's older names of strategies are ours, too: one import is all that changes."""

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60)
STRATEGIES = {
    "central": lambda e: e.CentralStorageStrategy(),
    "central on two": lambda e: e.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),
    "workers": lambda e: e.MultiWorkerMirroredStrategy(),
    "workers by": lambda e: e.MultiWorkerMirroredStrategy(e.CollectiveCommunication.RING),
}


@pytest.mark.parametrize("which", STRATEGIES)
def test_strategies_reach_over_the_ranks(which):
    with STRATEGIES[which](distribute.experimental) as s:
        replicas = 2 * len(s.extended.worker_devices)
        assert s.num_replicas_in_sync == replicas
        here = tf.distribute.get_replica_context
        ids = s.run(lambda: here().replica_id_in_sync_group)
        assert s.reduce("SUM", ids, axis=None).numpy() == sum(range(replicas))


def test_classes():
    ours, theirs = distribute.experimental, tf.distribute.experimental
    assert ours.CentralStorageStrategy is distribute.CentralStorageStrategy
    assert issubclass(ours.MultiWorkerMirroredStrategy, distribute.MultiWorkerMirroredStrategy)
    for name in ("CommunicationOptions", "ValueContext", "partitioners"):
        assert getattr(ours, name) is getattr(theirs, name)
        assert name in dir(ours)
