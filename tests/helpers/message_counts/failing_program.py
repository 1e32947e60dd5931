"""All ranks raise at the same time ("all"), or rank 1 while the others wait for it ("one")."""

from __future__ import annotations

import sys

from helpers.message_counts.in_rank import begin_phase, count_kernels, never_say_blocked
from mpistrat import Communicator

count_kernels()
never_say_blocked()
comm = Communicator()
comm.barrier()
begin_phase("failure")
if sys.argv[1] == "all" or comm.rank == 1:
    raise ValueError("raised on purpose")
comm.barrier()
