"""The peer ``gloo``: torch.distributed on the CPU."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from mpistrat import Communicator, config
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.peers.base import load, why_not
from mpistrat.types import Array

__all__ = ["GlooPeer"]

_OPS = {
    "sum": "SUM",
    "prod": "PRODUCT",
    "min": "MIN",
    "max": "MAX",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}


class GlooPeer:
    """torch.distributed's process group ``gloo``, on tensors that share the buffers' memory.

    Its reductions work in place only: a problem that is not in place has its input copied in the
    timed call, as its user would have to.
    """

    name = "gloo"
    takes_lists = False

    def missing(self) -> str | None:
        """See `Peer`."""
        if why := why_not("torch.distributed"):
            return why
        return None if load("torch.distributed").is_available() else "this torch is without it"

    def setup(self, communicator: Communicator) -> None:
        """See `Peer`."""
        load("torch").set_num_threads(1)  # a core a rank, as all other sides have
        topology = communicator.topology
        if topology.num_nodes == 1:
            # Otherwise gloo looks up the host's name, which may lead to an address that nobody can
            # reach.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        host = "127.0.0.1" if topology.num_nodes == 1 else topology.hostnames[0]
        with socket.socket() as probe:
            probe.bind(("", 0))
            # The socket is held until all know its port: the system gives it to no other process.
            port = communicator.bcast_object(probe.getsockname()[1])
        self._dist = load("torch.distributed")
        self._dist.init_process_group(
            "gloo",
            init_method=f"tcp://{host}:{port}",
            rank=communicator.rank,
            world_size=communicator.size,
            timeout=timedelta(seconds=config.timeout_s()),
        )

    def function(self, problem: Problem) -> Callable[[], object] | None:
        """See `Peer`. There are no means, and none of the operations that need lists."""
        dist, task = self._dist, problem.task
        try:
            send, recv = _tensor(problem.send), _tensor(problem.recv)
        except TypeError:  # a dtype that torch does not take from NumPy
            return None
        calls: dict[str, Callable[[], object]] = {
            "barrier": partial(dist.barrier),
            "bcast": partial(dist.broadcast, recv, 0),
            "allgather": partial(dist.all_gather_into_tensor, recv, send),
        }
        if task.op == "allreduce" and task.reduction in _OPS:
            op = getattr(dist.ReduceOp, _OPS[task.reduction])
            return partial(_allreduce, dist, None if task.in_place else send, recv, op)
        return calls.get(task.op)

    def teardown(self) -> None:
        """See `Peer`."""
        self._dist.destroy_process_group()


def _tensor(array: Array | None) -> Any:
    return None if array is None else load("torch").from_numpy(array)


def _allreduce(dist: Any, send: Any, recv: Any, op: Any) -> None:
    if send is not None:
        recv.copy_(send)
    dist.all_reduce(recv, op)
