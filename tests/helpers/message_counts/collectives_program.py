"""Ranks that make every collective once, each as a phase of its own.

Arguments: the backend, and the lengths of the arrays in bytes, multiples of 4 times the ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.message_counts.in_rank import begin_phase, count, count_kernels, never_say_blocked
from mpistrat import Communicator

count_kernels()
never_say_blocked()
comm = Communicator(backend=sys.argv[1])
RANK, SIZE = comm.rank, comm.size


def check(name: str, call: Callable[[], Any], expected: Any) -> None:
    """Count `call`, and compare its result on this rank."""
    found: list[Any] = []
    count(name, lambda: found.append(call()))
    for one in found:
        assert (one is None) == (expected is None), name
        assert expected is None or np.array_equal(one, expected), name


def measure(nbytes: int) -> None:
    """Make all calls with arrays of `nbytes`."""
    array = np.arange(nbytes // 4, dtype=np.float32) % 1000
    blocks = array.reshape(SIZE, -1)
    root_only, reduced = (array, SIZE * array) if RANK == 0 else (None, None)
    gathered = array if RANK == 0 else None
    exchanged = np.tile(blocks[RANK], SIZE)
    check(f"allreduce {nbytes}", lambda: comm.allreduce(array), SIZE * array)
    check(f"reduce {nbytes}", lambda: comm.reduce(array), reduced)
    check(f"bcast {nbytes}", lambda: comm.bcast(array * (RANK == 0)), array)
    check(f"reduce_scatter {nbytes}", lambda: comm.reduce_scatter(array), SIZE * blocks[RANK])
    check(f"allgather {nbytes}", lambda: comm.allgather(blocks[RANK]), array)
    check(f"gather {nbytes}", lambda: comm.gather(blocks[RANK]), gathered)
    check(f"scatter {nbytes}", lambda: comm.scatter(root_only), blocks[RANK])
    check(f"alltoall {nbytes}", lambda: comm.alltoall(array), exchanged)


begin_phase("between")
count("barrier", comm.barrier)
for argument in sys.argv[2:]:
    measure(int(argument))
count("allgather_object", lambda: comm.allgather_object("of 100 bytes".ljust(100)))
count("bcast_object", lambda: comm.bcast_object("of 100 bytes".ljust(100)))
begin_phase("close")
comm.close()
begin_phase("end")
