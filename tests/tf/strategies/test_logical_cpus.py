"""A MirroredStrategy has a replica on each logical CPU that the program has configured."""

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import with_all  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)


def test_mirrored_strategy_takes_all():
    mine = distribute.MirroredStrategy
    assert tf.distribute.MirroredStrategy().num_replicas_in_sync == 4
    with mine() as s:
        assert s.num_replicas_in_sync == 4 * s.communicator.size
        ids = s.run(lambda: tf.distribute.get_replica_context().replica_id_in_sync_group)
        each = sum(range(s.num_replicas_in_sync))
        assert s.reduce("SUM", ids, axis=None).numpy() == each


@pytest.mark.parametrize("name", ["MultiWorkerMirroredStrategy", "CentralStorageStrategy"])
def test_others_take_one_as_tensorflow_does(name):
    with getattr(distribute, name)() as s:
        assert s.num_replicas_in_sync == s.communicator.size
