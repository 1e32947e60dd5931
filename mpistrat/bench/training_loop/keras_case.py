"""Check and time ``fit`` of Keras on all ranks: the family ``keras`` of the case ``train``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.training_loop.check import other_weights, why_losses_differ
from mpistrat.bench.training_loop.keras_fit import NETWORK, KerasFit
from mpistrat.bench.training_loop.scaling_case import fitting_rounds, report
from mpistrat.errors import UsageError
from mpistrat.types import Array

__all__ = ["run_keras"]

_CHECKED_STEPS = 4


def run_keras(
    batch: int, steps: int, threads: int, rounds: int, seconds: float, json: Path | None
) -> bool:
    """Check, measure and report; return whether all was right. **Collective.**

    Raises
    ------
    UsageError
        TensorFlow is not installed.
    """
    strategy = _strategy(threads)
    communicator: Communicator = strategy.communicator
    fit = KerasFit(batch, strategy.scope())
    wrong = _why_wrong(fit, batch, communicator)
    if wrong is None:
        losses, times = _measure(fit, steps, rounds, seconds, communicator)
        wrong = other_weights(communicator, fit.weights)
    if wrong is None:
        task = _task(fit, batch, steps, communicator)
        report({**task, **_figures(losses, times, batch)}, communicator, json)
    elif communicator.rank == 0:
        print(f"train: {wrong}")
    strategy.close()
    return wrong is None


def _strategy(threads: int) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import tensorflow as tf
    except ImportError as error:
        raise UsageError(
            "--family keras: TensorFlow is not installed here; run:"
            ' pip install "mpistrat[tensorflow]", or pass --family arrays'
        ) from error

    from mpistrat.tensorflow import MirroredStrategy

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    return MirroredStrategy()


def _why_wrong(fit: KerasFit, batch: int, communicator: Communicator) -> str | None:
    """Train for some steps; return what is wrong, the same on all ranks. **Collective.**"""
    losses, _ = fit.run(_CHECKED_STEPS)
    expected = KerasFit(batch).run(_CHECKED_STEPS)[0] if communicator.rank == 0 else None
    wrong = why_losses_differ(losses, communicator.bcast_object(expected))
    reasons = communicator.allgather_object(wrong)
    first = next((f"rank {rank}: {one}" for rank, one in enumerate(reasons) if one), None)
    return first or other_weights(communicator, fit.weights)


def _measure(
    fit: KerasFit, steps: int, rounds: int, seconds: float, communicator: Communicator
) -> tuple[list[float], Array]:
    """Return the losses of a round, and each round's steps on their slowest rank."""
    _, trial = fit.run(_CHECKED_STEPS)
    step_us = float(communicator.allreduce(np.array(np.median(trial)), "max"))
    taken = []
    for _ in range(fitting_rounds(rounds, seconds, step_us * steps / 1e6)):
        communicator.barrier()
        taken.append(fit.run(steps))
    return taken[0][0], communicator.allreduce(np.stack([one for _, one in taken]), "max")


def _task(fit: KerasFit, batch: int, steps: int, communicator: Communicator) -> dict[str, Any]:
    topology = communicator.topology
    return {
        "case": "train",
        "family": "keras",
        "network": NETWORK,
        "global_batch": batch,
        "rank_batch": batch / topology.size,
        "steps": steps,
        "parameters": fit.parameters,
        "bytes": 4 * fit.parameters,
        "side": "mpistrat",
        "kind": "backend",
        "backend": communicator.backend.name,
        "ranks": topology.size,
        "nodes": topology.num_nodes,
    }


def _figures(losses: list[float], times_us: Array, batch: int) -> dict[str, Any]:
    names = {"min": 0, "median": 50, "p99": 99, "max": 100}
    spread = {name: round(float(np.percentile(times_us, q)), 3) for name, q in names.items()}
    return {
        "rounds": len(times_us),
        "time_us": spread,
        "steps_us": [round(float(one), 3) for one in np.median(times_us, axis=1)],
        "examples_per_s": round(batch / spread["median"] * 1e6, 3),
        # Keras computes and reduces in one graph, whose parts have no clock.
        "parts_us": None,
        "by_rank": None,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "correct": True,
    }
