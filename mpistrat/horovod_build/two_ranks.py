"""Program for 2 ranks: sum a tensor by Horovod, eagerly and in a graph, and check the sums."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the program; exit with 1 where a sum is wrong."""
    from mpi4py import MPI  # before Horovod, which then leaves MPI's start and end to it

    # isort: split
    import horovod.tensorflow as hvd
    import tensorflow as tf

    world = MPI.COMM_WORLD
    hvd.init(comm=world)
    device = _choose_device(hvd, tf)
    expected = [sum(i + rank for rank in range(world.size)) for i in range(4)]
    with tf.device(device):
        sums = _sums(hvd, tf, tf.range(4.0) + float(world.rank))
    hvd.shutdown()
    who = f"rank {world.rank} of {world.size}"
    wrong = [
        f"{name}: {got}, expected {expected}" for name, got in sums.items() if got != expected
    ]
    if wrong:
        sys.exit(f"{who}: Horovod's sum on the {device[:3]} is wrong: {'; '.join(wrong)}")
    print(f"{who}: its sums on the {device[:3]} are right", flush=True)


def _choose_device(hvd: Any, tf: Any) -> str:
    """Take a GPU of one's own, if Horovod can use GPUs and each rank can have one."""
    gpus = tf.config.list_physical_devices("GPU")
    # NCCL refuses two ranks on one GPU.
    has_own = bool(hvd.nccl_built()) and len(gpus) >= hvd.local_size()
    tf.config.set_visible_devices([gpus[hvd.local_rank()]] if has_own else [], "GPU")
    return "GPU:0" if has_own else "CPU:0"


def _sums(hvd: Any, tf: Any, mine: Any) -> dict[str, list[float]]:
    in_graph = tf.function(lambda one: hvd.allreduce(one, op=hvd.Sum, name="graph"))
    return {
        "eager": hvd.allreduce(mine, op=hvd.Sum, name="eager").numpy().tolist(),
        "in a graph": in_graph(mine).numpy().tolist(),
    }


if __name__ == "__main__":
    main()
