"""CentralStorageStrategy with replicas on GPUs: a single one has its variables there."""

import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from helpers.gpu.one_gpu_conformance import OneGpuConformance, host
from helpers.strategy.central_storage import made
from mpistrat import CentralStorageStrategy, Variable, VariableAggregation
from mpistrat.errors import BackendUnavailableError, MismatchError, UsageError
from mpistrat.optimizers import Adam
from mpistrat.testing.layouts import Layout
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint

SEVERAL = [Layout(1, 2), Layout(2, 1)]


class TestOneGpu(OneGpuConformance):
    @pytest.fixture(autouse=True)
    def _second_gpu(self):
        # What tests compute outside of `run` is on the current GPU: work of another one would
        # not be ordered with the variable's.
        with needs_gpus(2).cuda.Device(1):
            yield

    def strategy(self):
        return CentralStorageStrategy(["GPU:1"])

    def test_bfloat16(self):
        v = made(self.strategy(), np.ones(2, ml_dtypes.bfloat16))
        v.assign_add(v.value() * 2)
        assert v.dtype == ml_dtypes.bfloat16
        assert host(v.value()).tolist() == v.numpy().tolist() == [3.0, 3.0]


def strategies_of(layout):
    return CentralStorageStrategy([f"GPU:{i}" for i in range(layout.devices)])


@takes_long()
@pytest.mark.parametrize("layout", SEVERAL, ids=str)
def test_several_replicas_have_variables_on_the_host(layout):
    needs_gpus(layout.devices)
    with strategies_of(layout) as strategy:
        assert [one[-5:] for one in strategy.extended.parameter_devices] == ["CPU:0"]
        v = made(strategy, np.arange(3.0), aggregation=VariableAggregation.SUM)
        on_read = mpistrat.VariableSynchronization.ON_READ
        total = made(strategy, 0.0, synchronization=on_read, aggregation=VariableAggregation.SUM)
        optimizer = Adam(0.1)
        optimizer.build([v])

        def replica_fn():
            context = mpistrat.get_replica_context()
            index = int(context.devices[0][-1])
            read = [v.value(), v.read_value(), v.sparse_read([1]), context.all_reduce("SUM", 1.0)]
            read += [total.value()]
            assert [one.device.id for one in read] == [index] * 5
            optimizer.apply_gradients([(v.value() * 0 + 1, v)])
            v.assign_add(v.value() * 0 + 1)
            total.assign_add(total.value() + 1)
            return v.value()

        for found in strategy.experimental_local_results(strategy.run(replica_fn)):
            np.testing.assert_allclose(host(found), np.arange(3.0) - 0.1 + 2, rtol=1e-6)
        assert isinstance(v.value(), np.ndarray)
        assert float(total) == 2.0


def test_a_single_replica_may_have_its_variables_on_the_host():
    cupy = needs_gpus(1)
    strategy = CentralStorageStrategy(["GPU:0"], "CPU:0")
    v = made(strategy, np.arange(3.0))
    assert isinstance(v.value(), np.ndarray)
    assert isinstance(strategy.run(v.value), cupy.ndarray)
    strategy.run(lambda: v.assign_add(v.value()))
    assert v.numpy().tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("layout", SEVERAL, ids=str)
def test_gpus_for_the_variables_of_several_replicas_are_refused(layout):
    needs_gpus(layout.devices)
    names = [f"GPU:{i}" for i in range(layout.devices)]
    words = r"parameter_device='GPU:0', where .*only a single replica"
    with pytest.raises((UsageError, MismatchError), match=words):
        CentralStorageStrategy(names, "GPU:0")


def test_gpus_that_are_not_there_or_not_the_replicas():
    count = needs_gpus(1).cuda.runtime.getDeviceCount()
    with pytest.raises(BackendUnavailableError, match=f"can see {count} GPUs"):
        CentralStorageStrategy([f"GPU:{count}"])
    with pytest.raises(UsageError, match="only a single replica"):
        CentralStorageStrategy(["CPU:0"], "GPU:0")


@pytest.mark.mpi(ranks=2)
def test_files_of_ranks_on_the_host_are_restored_on_a_gpu_and_back():
    from mpi4py import MPI

    needs_gpus(1)
    values = np.arange(21.0).reshape(7, 3)
    with CentralStorageStrategy() as strategy:
        comm = strategy.extended.communicator
        alone = CentralStorageStrategy(["GPU:0"], comm=MPI.COMM_SELF)
        on_host, there = made(strategy, values), made(alone, values * 0)
        folder = Path(comm.bcast_object(tempfile.mkdtemp() if comm.rank == 0 else None))
        Checkpoint(v=on_host).write(folder / "host")
        Checkpoint(v=there).read(folder / "host").assert_consumed()
        assert host(there.value()).tolist() == values.tolist()
        there.assign_add(values)
        if comm.rank == 0:
            Checkpoint(v=there).write(folder / "gpu")
        comm.barrier()
        Checkpoint(v=on_host).read(folder / "gpu").assert_consumed()
        assert on_host.numpy().tolist() == (2 * values).tolist()
        comm.barrier()
        alone.close()
        if comm.rank == 0:
            shutil.rmtree(folder)


def test_variables_outside_of_the_scope_are_plain():
    cupy = needs_gpus(1)
    strategy = CentralStorageStrategy(["GPU:0"])
    plain = Variable(np.ones(2))
    assert isinstance(plain.value(), np.ndarray)
    assert isinstance(strategy.run(plain.value), cupy.ndarray)
