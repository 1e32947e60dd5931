"""A further rank without MPI, to be killed: mpirun ends all of its ranks when it loses one.

Arguments: the unique id in hexadecimal digits, the number of ranks, this rank.
"""

import sys
import time

import cupy
from cupy.cuda import nccl

cupy.cuda.Device(0).use()
unique_id, ranks, rank = sys.argv[1:]
communicator = nccl.NcclCommunicator(int(ranks), bytes.fromhex(unique_id), int(rank))
time.sleep(120)
