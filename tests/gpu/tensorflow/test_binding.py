"""Ranks that see all GPUs of a node use their own ones only.

In jobs of their own: once TensorFlow has started, it is too late to hide a GPU from it.
"""

import pytest
from mpi4py import MPI

cupy = pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.gpu.devices import needs_gpus  # noqa: E402
from helpers.tf.gpu_device import carried_on_gpus, gpus_of_tensorflow  # noqa: E402
from mpistrat.collectives.checking import device_gate  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

pytestmark = takes_long(unit="file")

gpus_of_tensorflow()


@pytest.mark.mpi(ranks=2, timeout_s=120, alone=True)
def test_each_rank_has_its_part_of_the_gpus():
    needs_gpus(2)
    rank, each = MPI.COMM_WORLD.rank, cupy.cuda.runtime.getDeviceCount() // 2
    used = []
    index_of = device_gate.on_device.index_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            device_gate.on_device,
            "index_of",
            lambda array: (used.append(index_of(array)), index_of(array))[1],
        )
        with distribute.MirroredStrategy() as s, carried_on_gpus() as carried:
            assert s.num_replicas_in_sync == 2 * each
            assert len(tf.config.list_logical_devices("GPU")) == each
            step = tf.function(
                lambda: tf.distribute.get_replica_context().all_reduce("SUM", one())
            )
            (total, *others) = s.experimental_local_results(s.run(step))
            assert total.numpy().tolist() == [2.0 * each] * 3
            assert [other.numpy().tolist() for other in others] == [[2.0 * each] * 3] * (each - 1)
            assert carried == [12]
    # TensorFlow counts the GPUs that it shows, CuPy all that there are.
    assert set(used) == {rank * each}
    assert cupy.cuda.Device().id == rank * each


def one():
    return tf.ones([3])
