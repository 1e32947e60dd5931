"""Workers of a `ParameterServerStrategy` on GPUs, where there are any."""

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief
from mpistrat import Variable
from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import BackendUnavailableError
from mpistrat.optimizers import SGD


@pytest.fixture(autouse=True)
def _needs_a_gpu():
    try:
        gpu_devices.require(["GPU:0"])
    except BackendUnavailableError as error:
        pytest.skip(str(error))


def test_arrays_of_a_gpu_come_to_the_host():
    with gpu_devices.on_gpu(0):
        there = on_device.placed(np.arange(6, dtype=np.float32).reshape(2, 3))
    with pytest.raises(TypeError):
        np.asarray(there)
    found = as_array(there * 2)
    assert (type(found), found.dtype) == (np.ndarray, np.float32)
    assert found.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


def test_workers_with_a_gpu_and_without_train_together():
    @on_chief(Cast(1, 2, 2), worker_devices=[["GPU:0", "CPU:0"], ["CPU:0"]])
    def _(strategy, coordinator):
        optimizer = SGD(1.0)
        with strategy.scope():
            w = Variable(np.zeros(3))
        optimizer.build([w])

        def replica_fn():
            optimizer.apply_gradients([(w.value() * 0 - 1.0, w)])
            replica = mpistrat.get_replica_context()
            total = replica.all_reduce("SUM", w.value())
            library = type(w.value()).__module__.partition(".")[0]
            return library, type(total) is type(w.value())

        def worker_fn():
            return strategy.experimental_local_results(strategy.run(replica_fn))

        found = coordinator.fetch([coordinator.schedule(worker_fn) for _ in range(8)])
        coordinator.join()
        assert w.numpy().tolist() == [float(sum(map(len, found)))] * 3
        for results in found:
            assert [one for one, _ in results] == ["cupy", "numpy"][2 - len(results) :]
            assert all(is_same for _, is_same in results)
