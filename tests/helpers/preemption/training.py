"""A training of arrays that can be stopped by signals: shuffled data, noise, momentum.

Started as ``python -m helpers.preemption.training FOLDER '{"pause_s": 0.1}'``, with the fields of
`Options`. Its last line is a digest of the weights: that of a training that nobody has stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mpistrat
from mpistrat.optimizers import SGD
from mpistrat.train import Checkpoint, CheckpointManager
from mpistrat.types import Array

EPOCHS, ROWS, BATCH = 3, 36, 6
STEPS = EPOCHS * ROWS // BATCH


@dataclass(frozen=True)
class Options:
    """What happens in a run.

    Attributes
    ----------
    strikes
        Signals: the number of a step, a rank, the name of what that rank sends to itself in that
        step, and after how many seconds. Step -1 is the first save of this run, -2 the second.
    stuck
        The number of a step in which the last rank waits for ever; and whether the others wait for
        it in a call of MPI, which Python cannot leave, and not in one of mpistrat.
    pause_s
        How long a step takes.
    tells
        The number of a step in which rank 0 says so.
    save_s
        How long a save takes, besides the writing.
    handler
        Arguments of `PreemptionHandler`.
    """

    strikes: list[tuple[int, int, str, float]] = field(default_factory=list)
    stuck: tuple[int, bool] = (-1, False)
    pause_s: float = 0.0
    tells: int = -1
    save_s: float = 0.0
    handler: dict[str, Any] = field(default_factory=dict)


class SlowManager(CheckpointManager):
    """Saves that take longer, and in which signals may come."""

    saves = 0
    training: Training

    def save(self, *args: Any, **kwargs: Any) -> str | None:
        """Wait, and save."""
        self.saves += 1
        self.training.strike(-self.saves)
        time.sleep(self.training.options.save_s)
        return super().save(*args, **kwargs)


class Training:
    """A linear model that learns from noisy data, on all ranks."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.options = options
        self.strategy = mpistrat.MirroredStrategy()
        self.rank = self.strategy.communicator.rank
        with self.strategy.scope():
            self.weights = mpistrat.Variable(
                np.zeros(4), aggregation=mpistrat.VariableAggregation.MEAN
            )
            self.optimizer = SGD(0.05, momentum=0.9)
            self.optimizer.build([self.weights])
        rows = np.random.default_rng(0).normal(size=(ROWS, 4))
        data = mpistrat.data.Dataset.from_tensor_slices(rows).shuffle(ROWS, seed=3).batch(BATCH)
        self.data = self.strategy.experimental_distribute_dataset(data)
        self.state = self.checkpoint()
        self.manager = SlowManager(self.state, folder, max_to_keep=2)
        self.manager.training = self
        self.began_at = self.manager.restore_or_initialize() and self.state.step

    def checkpoint(self) -> Any:
        """Return all that a restart needs."""
        return Checkpoint(
            weights=self.weights,
            optimizer=self.optimizer,
            data=self.data.position,
            step=0,
            epoch=0,
        )

    def run(self) -> None:
        """Train to the end, or until a signal comes."""
        with mpistrat.PreemptionHandler(self.manager, **self.options.handler) as handler:
            for epoch in range(self.state.epoch, EPOCHS):
                self.state.epoch = epoch
                for batch in self.data:
                    self.step(batch)
                    handler.end_step()

    def step(self, batch: Any) -> None:
        """Make one step, in which signals may come."""
        time.sleep(self.options.pause_s)
        self.strike(self.state.step)
        if self.options.tells == self.state.step and self.rank == 0:
            say(f"in step {self.options.tells}")
        if self.options.stuck[0] == self.state.step:
            self.wait_for_ever(*self.options.stuck)
        self.strategy.run(self.learn, args=(batch, self.state.step))
        self.state.step += 1

    def strike(self, at: int) -> None:
        """Send the signals of a step or a save."""
        for step, rank, name, delay_s in self.options.strikes:
            if (step, rank) == (at, self.rank):
                _strike(getattr(signal, name), delay_s)

    def wait_for_ever(self, step: int, in_mpi: bool) -> None:
        """Let the last rank never come, and the others perhaps wait for it outside of Python."""
        from mpi4py import MPI

        say(f"stuck in step {step}")
        if self.rank == self.strategy.communicator.size - 1:
            while True:
                time.sleep(1)
        if in_mpi:
            MPI.COMM_WORLD.Barrier()

    def learn(self, rows: Array, step: int) -> None:
        """Go down the gradient of this replica's rows and of noise of its own."""
        noise = mpistrat.random.generator(7, step=step).normal(size=4)
        gradient = (rows @ self.weights.value() - 1.0) @ rows + 0.1 * noise
        self.optimizer.apply_gradients([(gradient / BATCH, self.weights)])

    def digest(self) -> str:
        """Return a digest of the weights and of all that the optimizer keeps."""
        values = [np.asarray(one) for one in [self.weights, *self.optimizer.variables]]
        return hashlib.sha256(b"".join(one.tobytes() for one in values)).hexdigest()[:16]


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _strike(number: int, delay_s: float) -> None:
    if delay_s:
        threading.Timer(delay_s, os.kill, (os.getpid(), number)).start()
    else:
        os.kill(os.getpid(), number)


def main(folder: str, options: str = "{}") -> None:
    """Train, and print from which step to which, and the digest at the end."""
    training = Training(Path(folder), Options(**json.loads(options)))
    training.run()
    say(f"from {training.began_at} to {training.state.step}: {training.digest()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
