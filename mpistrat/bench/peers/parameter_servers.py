"""The peer of ``ps``: TensorFlow's ParameterServerStrategy, its servers on the same ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.ps_workload import Calls, TableSize, draws
from mpistrat.bench.peers.base import load, why_not
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.system.network.held_port import held_port
from mpistrat.types import Array

__all__ = ["TensorFlowServers"]


class TensorFlowServers:
    """A gRPC server of TensorFlow's in the process of each worker and ps. **Collective.**

    Attributes
    ----------
    missing
        Why it cannot be used, on some rank; or an empty text.
    """

    def __init__(self, communicator: Communicator, resolver: MPIClusterResolver) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        reasons = communicator.allgather_object(why_not("tensorflow"))
        self.missing = next((why for why in reasons if why), "")
        if self.missing:
            return
        self._tf = load("tensorflow")
        # Before TensorFlow is used, when it would take the GPUs' memory in each process.
        self._tf.config.set_visible_devices([], "GPU")
        job, index = str(resolver.task_type), int(resolver.task_id or 0)
        alone = communicator.topology.num_nodes == 1
        host = "127.0.0.1" if alone else communicator.topology.hostnames[communicator.rank]
        self._held = ExitStack()
        if job == "chief":
            # Held until TensorFlow opens it, when the side is made.
            address = f"{host}:{self._held.enter_context(held_port())}"
        else:
            # A server picks its port when it opens it; only the chief's has to be chosen before.
            spec = {job: {index: f"{host}:0"}}
            self._server = self._tf.distribute.Server(spec, job, index, "grpc")
            address = self._server.target.removeprefix("grpc://")
        self._jobs: dict[str, list[str]] = {}
        for name, where in communicator.allgather_object((job, address)):
            self._jobs.setdefault(name, []).append(where)

    @contextmanager
    def side(self, size: TableSize) -> Iterator[_Side]:
        """Give the chief a side with a table; the servers go on until their processes end."""
        tf = self._tf
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(self._jobs), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner
        with self._held:
            strategy = tf.distribute.ParameterServerStrategy(
                resolver, partitioner(len(self._jobs["ps"]))
            )
        yield _Side(tf, strategy, size)


class _Side:
    """See `Side`."""

    name = "tensorflow"

    def __init__(self, tf: Any, strategy: Any, size: TableSize) -> None:
        self._tf, self._size = tf, size
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        shape = (size.table_rows, size.columns)
        with strategy.scope():
            self.table = tf.Variable(lambda: _first(tf, shape), shape=shape, dtype=tf.float32)
        self._draws = self._dataset(self._rows)
        self._slices = self._dataset(self._rows_and_values)

    def _dataset(self, make: Callable[[], Any]) -> Any:
        return iter(self._coordinator.create_per_worker_dataset(make))

    def _rows(self) -> Any:
        return self._tf.data.Dataset.from_tensor_slices(draws(self._size)).repeat()

    def _rows_and_values(self) -> Any:
        tf, size = self._tf, self._size
        values = tf.data.Dataset.from_tensors(tf.ones((size.rows, size.columns))).repeat()
        return tf.data.Dataset.zip((self._rows(), values))

    def calls(self, kind: str) -> Calls:
        """See `Side`."""
        tf, table = self._tf, self.table

        def pull(iterator: Any) -> Any:
            return tf.nn.embedding_lookup(table, next(iterator))[0, 0]

        def push(iterator: Any) -> None:
            rows, values = next(iterator)
            table.scatter_sub(tf.IndexedSlices(values, rows))

        def dense() -> Any:
            return tf.convert_to_tensor(table)[0, 0]

        def empty() -> None:
            """Do nothing."""

        functions: dict[str, dict[str, Any]] = {
            "rows": {"pull": (pull, self._draws), "push": (push, self._slices)},
            "dense": {"pull": (dense,)},
            "schedule": {"empty function": (empty,)},
        }
        return {what: {self.name: self._times(*one)} for what, one in functions[kind].items()}

    def _times(self, function: Callable[..., Any], *args: Any) -> Callable[[int], object]:
        coordinator, traced = self._coordinator, self._tf.function(function, autograph=False)

        def call(count: int) -> None:
            for _ in range(count):
                coordinator.schedule(traced, args=args)
            coordinator.join()

        return call

    def value(self) -> Array:
        """See `Side`."""
        return np.concatenate([part.numpy() for part in self.table.variables])

    def pulled(self) -> tuple[Array, Array]:
        """See `Side`."""
        tf, table = self._tf, self.table

        # Workers of TensorFlow's run functions that were traced; a Python function would run here.
        @tf.function  # type: ignore[untyped-decorator]
        def pull(iterator: Any) -> Any:
            rows = next(iterator)
            return rows, tf.nn.embedding_lookup(table, rows)

        rows, values = self._coordinator.schedule(pull, args=(self._draws,)).fetch()
        return np.asarray(rows), np.asarray(values)


def _first(tf: Any, shape: tuple[int, int]) -> Any:
    numbers = tf.cast(tf.range(shape[0]) % 1000, tf.float32)
    return tf.repeat(numbers[:, None], shape[1], axis=1)
