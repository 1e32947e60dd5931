"""Reduce a short array over all ranks in as few steps as there can be (recursive doubling).

For what MPI's own reductions get wrong: NaN in minima and maxima, sums of 8 and 16 bits. The
kernels reduce here, the lower rank's part first, so all ranks come to the same bits.
"""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.base import Steps
from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.ring import tag_of
from mpistrat.collectives.shm import reduce_arrays
from mpistrat.types import Array

__all__ = ["allreduce"]


def allreduce(mpi: MpiBackend, call: int, data: Array, op: str) -> Steps:
    """Reduce `data` over the ranks of `mpi`, in place.

    Several may be under way at a time, if the numbers of their calls differ.
    Ranks beyond the last power of two lend their part to a rank below it, and get the result.
    """
    full = 1 << (mpi.size.bit_length() - 1)
    tag = tag_of(call)
    rank, other = mpi.rank, np.empty(data.size, data.dtype)
    if rank >= full:
        yield mpi.isend(data, rank - full, tag)
        yield mpi.irecv(data, rank - full, tag)
        return
    if rank + full < mpi.size:
        yield mpi.irecv(other, rank + full, tag)
        reduce_arrays(data, [data, other], op)
    step = 1
    while step < full:
        peer = rank ^ step
        sending = mpi.isend(data, peer, tag)
        yield mpi.irecv(other, peer, tag)
        yield sending
        reduce_arrays(data, [data, other] if rank < peer else [other, data], op)
        step *= 2
    if rank + full < mpi.size:
        yield mpi.isend(data, rank + full, tag)
