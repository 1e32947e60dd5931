"""Optimizers, data sets and checkpoints of strategies on GPUs: the CPU's bits."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from helpers.gpu.strategies import at_places, gpus_of, on_host, same_on_gpus
from helpers.strategy.training import MAKERS
from mpistrat import IndexedSlices, Variable
from mpistrat.collectives.arrays import on_device
from mpistrat.collectives.backends.gpu.kernels import updates
from mpistrat.errors import BackendUnavailableError
from mpistrat.optimizers import SGD, Adam, Optimizer
from mpistrat.tables.rule import Rule
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint

pytestmark = pytest.mark.mpi(ranks=[1, 2], timeout_s=240)  # kernels are compiled when first used

STEPS = 3


def trained(bench, optimizer, dtype=np.float64):
    """Return variables and slots after some steps with gradients of all and of rows."""
    strategy = bench.strategy
    with strategy.scope():
        w, b = Variable(np.ones((4, 3), dtype)), Variable(np.zeros(5, dtype))
        table = Variable(np.arange(18.0).reshape(9, 2).astype(dtype))
    optimizer.build([w, b, table])

    def step(number):
        seed = 10 * number + bench.replica()
        indices = np.array([seed % 9, 4, 4])
        if number % 2:  # of the host, and on the GPU
            indices = bench.array(indices)
        rows = IndexedSlices(bench.sample((3, 2), seed, dtype), indices, (9, 2))
        gradients = [bench.sample((4, 3), seed, dtype), bench.sample((5,), seed, dtype), rows]
        optimizer.apply_gradients(zip(gradients, [w, b, table], strict=True))
        bench.check(w.value(), table.value())

    for number in range(STEPS):
        strategy.run(step, args=(number,))
    kept = [w, b, table, *optimizer.variables]
    copies = [one.values if hasattr(one, "values") else (one,) for one in kept]
    return [[copy.numpy() for copy in some] for some in copies]


@at_places
def test_optimizers(place):
    def program(bench):
        return [trained(bench, make()) for make in MAKERS.values()]

    same_on_gpus(place, program)


@takes_long()
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_optimizers_of_short_types(dtype):
    same_on_gpus("two", lambda bench: trained(bench, Adam(0.125, amsgrad=True), np.dtype(dtype)))


def test_a_step_is_one_launch_a_gpu():
    launches, launch = [], updates.launch
    devices = gpus_of("two")
    with (
        pytest.MonkeyPatch.context() as patch,
        mpistrat.MirroredStrategy(devices) as strategy,
    ):
        patch.setattr(updates, "launch", lambda *args: (launches.append(1), launch(*args)))
        with strategy.scope():
            weights = [Variable(np.ones(3 + index, np.float32)) for index in range(40)]
        optimizer = Adam()
        optimizer.build(weights)
        strategy.run(lambda: optimizer.apply_gradients([(w.value(), w) for w in weights]))
        assert len(launches) == len(devices)


class Halving(Rule):
    """A rule of a user's own, for which there is no kernel."""

    def change(self, slots, gradient, step, learning_rate):
        return gradient * (-0.5 * learning_rate)


def test_rules_of_ones_own():
    same_on_gpus("two", lambda bench: trained(bench, Optimizer(Halving(), 0.25)))


@at_places
def test_data_sets(place):
    def program(bench):
        strategy, seen = bench.strategy, []
        rows = np.arange(44.0).reshape(22, 2), np.arange(22, dtype=np.int32)
        data = mpistrat.data.Dataset.from_tensor_slices({"x": rows[0], "y": rows[1]}).shuffle(22)

        def step(batch):
            bench.check(batch["x"], batch["y"])
            return {name: one * 2 for name, one in batch.items()}

        for buffered in (0, 1, 3):
            options = mpistrat.InputOptions(experimental_per_replica_buffer_size=buffered)
            distributed = strategy.experimental_distribute_dataset(data.batch(7), options)
            for _ in range(2):
                for batch in distributed:
                    results = strategy.run(step, args=(batch,))
                    seen.append(strategy.experimental_local_results(results))

        def own(context):
            length = 2 + context.input_pipeline_id  # ranks end apart: batches of no rows
            return [np.full((2, 2), index + 0.5) for index in range(length)]

        def gathered(batch):
            return strategy.gather(strategy.run(lambda rows: rows + 1, args=(batch,)), 0)

        seen += map(gathered, strategy.distribute_datasets_from_function(own))
        return seen

    same_on_gpus(place, program)


def test_batches_in_any_order_of_bytes_and_of_any_dtype():
    with mpistrat.OneDeviceStrategy(gpus_of("shared")[0]) as strategy:
        rows = {"i": np.arange(4).astype(">i4"), "f": np.arange(4).astype(">f4")}
        rows["long"] = np.arange(4, dtype=np.longdouble)
        data = mpistrat.data.Dataset.from_tensor_slices(rows).batch(4)
        for batch in strategy.experimental_distribute_dataset(data):
            assert (batch["i"] + 1).tolist() == [1, 2, 3, 4]  # computed on the GPU
            assert (batch["f"] + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
            assert isinstance(batch["long"], np.ndarray)


def test_several_iterators_of_one_data_set():
    with mpistrat.OneDeviceStrategy(gpus_of("shared")[0]) as strategy:
        rows = np.arange(600.0).reshape(300, 2)
        data = mpistrat.data.Dataset.from_tensor_slices(rows).batch(3)
        distributed = strategy.experimental_distribute_dataset(data)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for batches in zip(*(iter(distributed) for _ in range(3)), strict=True):
                assert len({on_host(batch).tobytes() for batch in batches}) == 1
        finally:
            sys.setswitchinterval(interval)


def test_a_gpu_without_memory_for_a_batch():
    cupy = needs_gpus(1)
    with mpistrat.OneDeviceStrategy(gpus_of("shared")[0]) as strategy:
        data = mpistrat.data.Dataset.from_tensor_slices(np.ones((4, 1 << 20)))
        distributed = strategy.experimental_distribute_dataset(data.batch(2))
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        pool.set_limit(size=1 << 20)
        try:
            with pytest.raises(BackendUnavailableError, match=r"16777216 bytes on GPU:0: .*mem"):
                next(iter(distributed))
        finally:
            pool.set_limit(size=0)


def test_batches_stay_on_the_host_if_asked():
    with mpistrat.MirroredStrategy(gpus_of("own")) as strategy:
        options = mpistrat.InputOptions(experimental_fetch_to_device=False)
        data = strategy.experimental_distribute_dataset(np.ones((4, 2)), options)
        assert {type(batch) for batch in data} == {np.ndarray}


def test_a_batch_that_is_kept_is_not_written_to():
    with mpistrat.MirroredStrategy(gpus_of("own")) as strategy:
        data = np.arange(4000.0).reshape(40, 100)
        size = strategy.num_replicas_in_sync
        batches = mpistrat.data.Dataset.from_tensor_slices(data).batch(2 * size).repeat(5)
        distributed = strategy.experimental_distribute_dataset(batches)
        kept, copies = [], []
        for number, batch in enumerate(distributed):
            if number % 3 == 0:
                kept.append(batch)
                copies.append(on_host(batch))
        for one, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(on_host(one), copy)


def test_data_on_a_gpu_and_what_is_no_number():
    cupy = needs_gpus(1)
    with mpistrat.OneDeviceStrategy(gpus_of("shared")[0]) as strategy:
        rows = {"x": cupy.arange(6.0).reshape(3, 2), "name": np.array(["a", "b", "c"])}
        data = mpistrat.data.Dataset.from_tensor_slices(rows).batch(2)
        for batch in strategy.experimental_distribute_dataset(data):
            assert on_device.is_elsewhere(batch["x"])
            assert isinstance(batch["name"], np.ndarray)
        for batch in strategy.experimental_distribute_dataset([cupy.ones(3), cupy.ones(3)]):
            assert on_device.is_elsewhere(batch)


@pytest.mark.parametrize("saves_on_gpus", [True, False])
def test_checkpoints(saves_on_gpus):
    from mpi4py import MPI

    gpus = gpus_of("two")
    cpus = ["CPU:0", "CPU:1"]
    there, back = (gpus, cpus) if saves_on_gpus else (cpus, gpus)
    folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp())
    found = []
    for devices in (there, back):
        with mpistrat.MirroredStrategy(devices) as strategy:
            with strategy.scope():
                v = Variable(np.zeros(3))
            optimizer = SGD(0.25, 0.5)
            optimizer.build([v])
            checkpoint = Checkpoint(v=v, optimizer=optimizer)
            if devices is there:
                strategy.run(lambda: optimizer.apply_gradients([(v.value() + 1, v)]))  # noqa: B023
                path = checkpoint.write(Path(folder) / "one")
            else:
                checkpoint.read(path).assert_consumed()
            strategy.run(lambda: optimizer.apply_gradients([(v.value() + 1, v)]))  # noqa: B023
            found.append([one.numpy().tolist() for one in v.values])
            assert optimizer.iterations == 2
    assert found[0] == found[1]
