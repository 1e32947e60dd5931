"""A job with parameter servers: a chief, workers, and as many ps as the argument says."""

from __future__ import annotations

import sys

import numpy as np

import mpistrat
from helpers.message_counts.in_rank import begin_phase, count_kernels, never_say_blocked
from mpistrat.cluster_resolver import MPIClusterResolver

NUM_PS, NUM_FUNCTIONS = map(int, sys.argv[1:])

count_kernels()
never_say_blocked()
resolver = MPIClusterResolver(num_ps=NUM_PS)
if resolver.task_type != "chief":
    mpistrat.Server(resolver).join()
else:
    partitioner = mpistrat.experimental.partitioners.FixedShardsPartitioner(NUM_PS)
    with mpistrat.ParameterServerStrategy(resolver, partitioner) as strategy:
        coordinator = mpistrat.coordinator.ClusterCoordinator(strategy)
        begin_phase("variable")
        with strategy.scope():
            table = mpistrat.Variable(np.zeros((64, 4), np.float32))
        begin_phase("functions")
        for _ in range(NUM_FUNCTIONS):
            coordinator.schedule(lambda: float(table.numpy()[0, 0]))
        coordinator.join()
        begin_phase("close")
    begin_phase("end")
