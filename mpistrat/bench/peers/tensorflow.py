"""The peer ``tensorflow``: MultiWorkerMirroredStrategy's collective all-reduce."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from mpistrat import Communicator
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.peers.base import load, why_not
from mpistrat.system.network.held_port import held_port

__all__ = ["TensorFlowPeer"]

_REDUCTIONS = ("sum", "mean")


class TensorFlowPeer:
    """tf.distribute with a worker a rank: its own servers (gRPC), started on free ports.

    Its tensors are copies of the buffers, made before; the timed call is a ``tf.function`` that
    all-reduces in replica context, and returns new tensors.
    """

    name = "tensorflow"
    takes_lists = True

    def missing(self) -> str | None:
        """See `Peer`."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        return why_not("tensorflow")

    def setup(self, communicator: Communicator) -> None:
        """See `Peer`."""
        self._tf = load("tensorflow")
        self._communicator = communicator
        self._tf.config.set_visible_devices([], "GPU")
        threads = max(1, (os.cpu_count() or 1) // communicator.topology.local_size)
        self._tf.config.threading.set_intra_op_parallelism_threads(threads)
        # The port is held until the server has opened it, in the strategy's constructor, which
        # reads the variable.
        with held_port() as port:
            os.environ["TF_CONFIG"] = json.dumps(_tf_config(communicator, port))
            self.strategy = self._tf.distribute.MultiWorkerMirroredStrategy()

    def function(self, problem: Problem) -> Callable[[], object] | None:
        """See `Peer`. All-reduce only; in place or not is the same to it."""
        task = problem.task
        if task.op not in ("allreduce", "allreduce_many") or task.reduction not in _REDUCTIONS:
            return None
        if task.dtype.kind != "f":
            return None
        given = problem.send if task.op == "allreduce" else list(problem.arrays)
        tensors = self._tf.nest.map_structure(self._tf.constant, given)
        return partial(_traced(self._tf, self.strategy, task.reduction.upper()), tensors)

    def teardown(self) -> None:
        """See `Peer`."""
        self._communicator.barrier()  # a server that ends first would upset the others


def _traced(tf: Any, strategy: Any, reduction: str) -> Callable[[Any], object]:
    def all_reduce(mine: Any) -> Any:
        placed = tf.nest.map_structure(tf.identity, mine)  # it refuses tensors without a device
        return tf.distribute.get_replica_context().all_reduce(reduction, placed)

    def step(tensors: Any) -> Any:
        return strategy.run(all_reduce, args=(tensors,))

    traced: Callable[[Any], object] = tf.function(step)
    return traced


def _tf_config(communicator: Communicator, port: int) -> dict[str, Any]:
    topology = communicator.topology
    host = "127.0.0.1" if topology.num_nodes == 1 else topology.hostnames[communicator.rank]
    workers = communicator.allgather_object(f"{host}:{port}")
    task = {"type": "worker", "index": communicator.rank}
    return {"cluster": {"worker": workers}, "task": task}
