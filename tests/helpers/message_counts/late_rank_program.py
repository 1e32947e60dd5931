"""A rank is late in a call, so that all others wait for long; then the job ends well."""

from __future__ import annotations

import time

import numpy as np

from helpers.message_counts.in_rank import begin_phase, count_kernels
from mpistrat import Communicator
from mpistrat.collectives.checking import deadlock

LATE = 1

count_kernels()
# Far enough apart for one rank's notice to arrive before the next one's turn.
deadlock.SAY_AFTER_S, deadlock.SPREAD_S = 0.3, 0.25
first, second = Communicator(), Communicator()
first.barrier()
begin_phase("wait")
if first.rank == LATE:
    time.sleep(deadlock.SAY_AFTER_S + deadlock.SPREAD_S * first.size.bit_length() + 0.7)
assert first.allreduce(np.ones(1))[0] == first.size
begin_phase("after")
assert second.allreduce(np.ones(1))[0] == second.size
second.close()
first.close()
begin_phase("end")
