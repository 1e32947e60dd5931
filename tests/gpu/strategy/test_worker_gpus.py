"""Workers of a `ParameterServerStrategy` with several GPUs, and with GPUs that are not there."""

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import on_chief, on_jobs
from helpers.gpu.devices import needs_gpus
from mpistrat import IndexedSlices, Variable, VariableAggregation
from mpistrat.errors import BackendUnavailableError, MismatchError
from mpistrat.optimizers import SGD
from mpistrat.strategy.variables.sharded.embedding import embedding_lookup
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.testing.sets import takes_long

GPUS = [["GPU:0", "GPU:1"], ["GPU:1"]]


@takes_long()
@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
def test_on_gpus_values_are_read_there_and_gradients_come_from_there(layout, parts):
    needs_gpus(2)

    @on_chief(layout, FixedShardsPartitioner(parts), worker_devices=GPUS)
    def _(strategy, coordinator):
        optimizer = SGD(0.5)
        with strategy.scope():
            w = Variable(np.ones((5, 2)), aggregation=VariableAggregation.SUM)
            table = Variable(np.zeros((5, 2)))
        optimizer.build([w, table])

        def replica_fn():
            replica = mpistrat.get_replica_context()
            index = int(replica.devices[0][-1])
            read = [w.value(), w.read_value(), w.sparse_read([0, 2]), embedding_lookup(w, [1])]
            read += [replica.all_reduce("SUM", w.value())]
            read += [replica.all_gather(w.value(), axis=0)]
            assert [one.device.id for one in read] == [index] * 6
            assert isinstance(w.numpy(), np.ndarray)
            some = IndexedSlices(table.sparse_read([3]) - 1.0, [3], (5, 2))
            optimizer.apply_gradients([(0.0 * w.value() - 2.0, w), (some, table)])
            w.assign_add(w.value() * 0.0 + 100.0)
            return index

        def worker_fn():
            return strategy.experimental_local_results(strategy.run(replica_fn))

        found = coordinator.fetch([coordinator.schedule(worker_fn) for _ in range(8)])
        assert set(found) <= {(0, 1), (1,)}
        coordinator.join()
        replicas = sum(map(len, found))
        np.testing.assert_allclose(w.numpy(), np.full((5, 2), 1.0 + 101.0 * replicas))
        assert (table.numpy()[3] > 0.0).all()
        assert isinstance(w.value(), np.ndarray)  # the chief is on no GPU


@on_jobs
def test_a_gpu_that_is_not_there_is_an_error_on_every_rank(layout):
    count = needs_gpus(1).cuda.runtime.getDeviceCount()
    error, words = (BackendUnavailableError, MismatchError), f"this rank can see {count} GPUs"
    with pytest.raises(error, match=words):
        on_chief(layout, worker_devices=[["GPU:0"], [f"GPU:{count}"]])(lambda *_: None)
