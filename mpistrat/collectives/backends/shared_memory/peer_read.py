"""Find out whether ranks may read each other's private memory (kernels/shm/peer_read).

Linux lets a process read another one's memory if it could trace it: same user, same PID namespace,
and no stricter rule (``kernel.yama.ptrace_scope`` above 0, seccomp). Every rank tries on every
other one; only if all succeed, long arrays are read where they are. Else they pass through slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.shared_memory.bootstrap import exchange, run
from mpistrat.system.liveness.pidfd import Process
from mpistrat.system.log import get_logger

__all__ = ["reach"]

_LOG = get_logger(__name__)


def reach(
    backend: Backend, kernels: Any, node: Any, processes: Sequence[Process], timeout: float
) -> bool:
    """Let `node` read the other ranks' memory if all ranks can; return it. **Collective.**"""
    rows = run(exchange(backend, "{} {}".format(*node.token())), timeout, backend)
    tokens = [tuple(map(int, row.split())) for row in rows]
    complaint = _complaint(backend.rank, kernels, processes, tokens)
    complaints = [text for text in run(exchange(backend, complaint), timeout, backend) if text]
    if complaints:
        _LOG.info("arrays pass through shared memory: %s", complaints[0])
        return False
    node.reach([process.pid for process in processes])
    return True


def _complaint(
    rank: int, kernels: Any, processes: Sequence[Process], tokens: Sequence[tuple[int, ...]]
) -> str:
    """Return which rank this one cannot read, or an empty text."""
    for other, (process, token) in enumerate(zip(processes, tokens, strict=True)):
        is_here = process.namespace == processes[rank].namespace
        if not is_here or not kernels.has_token(process.pid, *token):
            return (
                f"rank {rank} may not read the memory of rank {other} (process {process.pid});"
                " see kernel.yama.ptrace_scope"
            )
    return ""
