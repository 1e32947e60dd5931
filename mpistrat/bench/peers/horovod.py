"""The peer ``horovod``: its all-reduce of PyTorch's tensors, or of TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.peers.base import load, why_not
from mpistrat.cluster import mpi
from mpistrat.types import Array

__all__ = ["HorovodPeer"]

_OPS = {"sum": "Sum", "mean": "Average", "prod": "Product", "min": "Min", "max": "Max"}
_DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")
_FRAMEWORKS = ("torch", "tensorflow")


class HorovodPeer:
    """Horovod over MPI, for the first of PyTorch and TensorFlow that it was built for.

    The tensors of PyTorch share the buffers' memory. TensorFlow's are copies made beforehand, and
    it returns new ones. Lists of arrays are one grouped call.

    Parameters
    ----------
    frameworks
        Those that will do, the best first.
    """

    name = "horovod"
    takes_lists = True

    def __init__(self, frameworks: Sequence[str] = _FRAMEWORKS) -> None:
        self._frameworks = frameworks

    def missing(self) -> str | None:
        """See `Peer`."""
        if why := why_not("horovod"):
            return why
        if mpi.world() is None:
            return "no launcher started this process"
        reasons = [_why_not_for(framework) for framework in self._frameworks]
        wanted = " or ".join(self._frameworks)
        return None if None in reasons else f"it was not built for {wanted}: {reasons[0]}"

    def setup(self, communicator: Communicator) -> None:
        """See `Peer`."""
        del communicator
        found = (name for name in self._frameworks if not _why_not_for(name))
        self._framework = next(found)
        self._hvd = load(f"horovod.{self._framework}")
        self._hvd.init(comm=mpi.world())

    def function(self, problem: Problem) -> Callable[[], object] | None:
        """See `Peer`. All-reduce only."""
        task = problem.task
        if (
            task.op not in ("allreduce", "allreduce_many")
            or task.reduction not in _OPS
            or task.dtype.name not in _DTYPES
            or (task.reduction == "mean" and task.dtype.kind != "f")
        ):
            return None
        op = getattr(self._hvd, _OPS[task.reduction])
        if task.op == "allreduce_many":
            tensors = [self._tensor(array) for array in problem.arrays]
            call = partial(self._hvd.grouped_allreduce, tensors, op=op, name="mpistrat")
            return partial(_as_arrays, call)
        if self._framework == "torch":
            recv = self._tensor(problem.recv)
            given = None if task.in_place else self._tensor(problem.send)
            return partial(self._in_place, given, recv, op)
        # One name for all calls: Horovod matches calls by it, and reuses what it negotiated for
        # it.
        return partial(self._hvd.allreduce, self._tensor(problem.send), op=op, name="mpistrat")

    def summed(self, tensors: list[Any]) -> list[Any]:
        """Return the sums of a list of tensors, now or when the graph runs."""
        sums: list[Any] = self._hvd.grouped_allreduce(tensors, op=self._hvd.Sum)
        return sums

    def _tensor(self, array: Array | None) -> object:
        if self._framework == "torch":
            return load("torch").from_numpy(array)
        return load("tensorflow").constant(array)

    def _in_place(self, send: object, recv: object, op: object) -> None:
        if send is not None:
            # Within the timed call: its user would have to do so, too, to keep the input.
            recv.copy_(send)  # type: ignore[attr-defined]
        self._hvd.allreduce_(recv, op=op, name="mpistrat")

    def teardown(self) -> None:
        """See `Peer`."""
        self._hvd.shutdown()


def _why_not_for(framework: str) -> str | None:
    """Return why Horovod cannot be used with a framework, or None."""
    module = f"horovod.{framework}"
    # Where it was not built for PyTorch, the module is there all the same, with a warning.
    return why_not(module) or (None if hasattr(load(module), "init") else f"{module} is empty")


def _as_arrays(call: Callable[[], list[object]]) -> list[Array]:
    return [np.asarray(tensor) for tensor in call()]
