"""The operations, one a file, all of one shape.

Each file has a function named like its operation. Called, it checks the arguments of this rank
(and raises before anything is sent); it returns the steps, which cross the gate, let the backend
move flat arrays, and return the result in the user's shape and dtype. What they mean to a user is
documented once, on the methods of `Communicator`.
"""

from mpistrat.collectives.operations.allgather import allgather
from mpistrat.collectives.operations.allreduce import allreduce, allreduce_from_gpu
from mpistrat.collectives.operations.allreduce_many import allreduce_many
from mpistrat.collectives.operations.alltoall import alltoall
from mpistrat.collectives.operations.barrier import barrier, close
from mpistrat.collectives.operations.bcast import bcast
from mpistrat.collectives.operations.empty import empty
from mpistrat.collectives.operations.gather import gather
from mpistrat.collectives.operations.outside import outside
from mpistrat.collectives.operations.reduce import reduce
from mpistrat.collectives.operations.reduce_scatter import reduce_scatter
from mpistrat.collectives.operations.scatter import scatter

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_from_gpu",
    "allreduce_many",
    "alltoall",
    "barrier",
    "bcast",
    "close",
    "empty",
    "gather",
    "outside",
    "reduce",
    "reduce_scatter",
    "scatter",
]
