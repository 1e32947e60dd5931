"""Variables in parts on ranks: training, and checkpoints from and for any number of parts."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from helpers.mistakes import abandon, refused
from mpistrat import CentralStorageStrategy, IndexedSlices, MirroredStrategy, Variable
from mpistrat.errors import CommunicationError, UsageError
from mpistrat.experimental import partitioners
from mpistrat.nn import embedding_lookup
from mpistrat.optimizers import Adam
from mpistrat.strategy.variables.sharded.partitioning import partitioned
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.train import Checkpoint

pytestmark = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2, 3])

TABLE = np.arange(26.0).reshape(13, 2)
STEPS = 5


def in_parts(count, value=TABLE):
    """Return a table in so many parts; with rank 0's initial value on all ranks."""
    partitioner = partitioners.FixedShardsPartitioner(count)
    arguments = {"initial_value": value, "name": "table"}
    return partitioned(lambda all_: [Variable(**one) for one in all_], arguments, partitioner)


def train(table, optimizer, replica=0, replicas=1):
    """Pull words of a global batch towards their numbers."""
    for step in range(STEPS):
        words = np.random.default_rng(step).integers(0, 13, 12)[replica::replicas]
        rows = embedding_lookup(table, words)
        slices = IndexedSlices((rows - words[:, np.newaxis]) / 12, words, (13, 2))
        optimizer.apply_gradients([(slices, table)])


KINDS = [MirroredStrategy, CentralStorageStrategy]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("parts", [1, 3, 5] if with_all() else [1, 5])
def test_training_is_that_of_one_process_and_one_part(parts, devices, kind):
    alone = Variable(TABLE)
    train(alone, Adam(0.1))
    with kind([f"CPU:{i}" for i in range(devices)]) as strategy:
        rank = strategy.extended.communicator.rank
        with strategy.scope():
            table, optimizer = in_parts(parts, TABLE if rank == 0 else TABLE * 0), Adam(0.1)

        def replica_fn():
            replica = mpistrat.get_replica_context()
            counts = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
            train(table, optimizer, *counts)

        strategy.run(replica_fn)
        np.testing.assert_allclose(table.numpy(), alone.numpy(), rtol=1e-9, atol=1e-12)
        mine = table.numpy().tobytes()
        assert set(strategy.extended.communicator.allgather_object(mine)) == {mine}


@takes_long()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (5, 3)])
def test_b93_a_checkpoint_goes_onto_any_number_of_parts(before, after, kind):
    with kind() as strategy, strategy.scope():
        communicator = strategy.extended.communicator
        first = communicator.rank == 0
        folder = Path(communicator.bcast_object(tempfile.mkdtemp() if first else None))
        table, optimizer = in_parts(before), Adam(0.1)
        train(table, optimizer)
        path = Checkpoint(table=table, optimizer=optimizer).write(folder / "one")
        again, other = in_parts(after, TABLE * 0), Adam(0.1)
        other.build([again])
        Checkpoint(table=again, optimizer=other).read(path).assert_consumed()
        for one, kept in ((table, optimizer), (again, other)):
            train(one, kept)
        np.testing.assert_array_equal(again.numpy(), table.numpy())


@pytest.mark.mpi(ranks=[2, 3])
def test_a_gradient_that_does_not_fit_on_one_rank():
    strategy = MirroredStrategy()
    is_first = strategy.extended.communicator.rank == 0
    with strategy.scope():
        table = in_parts(4)
    rows = IndexedSlices(np.ones((1, 2)), [13 if is_first else 0])
    with refused(UsageError if is_first else CommunicationError, "1 of 1 indices"):
        strategy.run(lambda: Adam().apply_gradients([(rows, table)]))
    np.testing.assert_array_equal(table.numpy(), TABLE)
    abandon(strategy)
