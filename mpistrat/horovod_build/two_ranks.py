"""Program for 2 ranks: sum a tensor by Horovod, eagerly and in a graph, and check the sums."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the program; exit with 1 where a sum is wrong."""
    from mpi4py import MPI  # before Horovod, which then leaves MPI's start and end to it

    # isort: split
    import horovod.tensorflow as hvd
    import tensorflow as tf

    world = MPI.COMM_WORLD
    hvd.init(comm=world)
    mine = tf.range(4.0) + float(world.rank)
    expected = [sum(i + rank for rank in range(world.size)) for i in range(4)]
    eager = hvd.allreduce(mine, op=hvd.Sum, name="eager")
    in_graph = tf.function(lambda one: hvd.allreduce(one, op=hvd.Sum, name="graph"))(mine)
    sums = {"eager": eager.numpy().tolist(), "in a graph": in_graph.numpy().tolist()}
    hvd.shutdown()
    wrong = [
        f"{name}: {got}, expected {expected}" for name, got in sums.items() if got != expected
    ]
    if wrong:
        sys.exit(f"rank {world.rank} of {world.size}: Horovod's sum is wrong: {'; '.join(wrong)}")
    print(f"rank {world.rank} of {world.size}: its sums are right", flush=True)


if __name__ == "__main__":
    main()
