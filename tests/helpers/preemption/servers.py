"""A training with parameter servers that signals can stop; started on four ranks.

Started as ``python -m helpers.preemption.servers FOLDER STEP``: in that step every rank gets a
signal, first those that serve. The chief's last line is the sum that the workers have made.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import mpistrat
from helpers.preemption.training import say
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.coordinator import ClusterCoordinator
from mpistrat.train import Checkpoint, CheckpointManager

STEPS = 12


def struck(step: Any, at: int) -> Any:
    """Be the function of a step on a worker, which strikes its process in one step."""
    if int(step) == at:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.2)
    return int(step)


def main(folder: str, at: int) -> None:
    """Play this rank's role."""
    resolver = MPIClusterResolver(num_ps=1)
    if resolver.task_type == "chief":
        lead(resolver, folder, at)
        return
    with mpistrat.PreemptionHandler(None) as handler:  # this rank ends when the chief does
        server = mpistrat.Server(resolver)
        if at >= 0 and resolver.task_type == "ps":
            os.kill(os.getpid(), signal.SIGUSR1)
        server.join()
        say(f"{resolver.task_type} was signalled: {handler.poll()}")


def lead(resolver: Any, folder: str, at: int) -> None:
    """Train as the chief."""
    strategy = mpistrat.ParameterServerStrategy(resolver)
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        total = mpistrat.Variable(np.zeros(3))
    state: Any = Checkpoint(total=total, step=0)
    manager = CheckpointManager(state, folder, max_to_keep=2)
    manager.restore_or_initialize()
    say(f"from {vars(state)['step']}")
    with mpistrat.PreemptionHandler(manager) as handler:
        for step in range(vars(state)["step"], STEPS):
            total.assign_add(np.full(3, coordinator.schedule(struck, (step, at)).fetch()))
            coordinator.join()  # no function may change what is saved
            state.step = step + 1
            if step == at:
                os.kill(os.getpid(), signal.SIGUSR1)
            handler.end_step()
    say(f"sum {total.numpy().tolist()}")
    strategy.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
