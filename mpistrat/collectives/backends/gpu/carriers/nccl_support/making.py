"""Make a communicator of NCCL on all ranks, or on none.

NCCL waits for all ranks without a deadline, also for one on which its initialisation has failed.
So a thread waits for NCCL, and the ranks meanwhile tell each other over the host how far they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Late, LateRequest, Request, Steps
from mpistrat.types import Array

__all__ = ["Making"]

_PENDING, _DONE, _FAILED = range(3)
_ROUND_S = 0.01


class Making(LateRequest):
    """A request that is complete once NCCL is ready on all ranks, or has failed on one of them.

    **Collective**: all ranks make one, and wait for it.

    Parameters
    ----------
    host
        The backend by which the ranks tell how far they are.
    make
        Returns CuPy's communicator, or raises.
    device
        The GPU that is to be the current one meanwhile.

    Attributes
    ----------
    reason
        Why it failed on this rank, or None.
    """

    def __init__(self, host: Backend, make: Callable[[], Any], device: int) -> None:
        self.reason: str | None = None
        self._host, self._make, self._device = host, make, device
        self._comm: Any = None
        self._lock, self._is_abandoned = threading.Lock(), False
        self._states = np.full(host.size, _PENDING, np.uint8)
        self._rounds = self._tell()
        self._request: Request = _Pause(self)
        self._thread = threading.Thread(target=self._run, name="mpistrat NCCL", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import cupy

        try:
            with cupy.cuda.Device(self._device):
                comm = self._make()
        except Exception as error:  # noqa: BLE001 - whatever it is, all ranks hear of it
            self.reason = f"{type(error).__name__}: {error}"
            return
        with self._lock:
            if not self._is_abandoned:
                self._comm = comm
                return
        comm.abort()  # it came too late

    @property
    def state(self) -> int:
        """How far this rank is."""
        if self.reason is not None:
            return _FAILED
        return _PENDING if self._comm is None else _DONE

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Go on telling the others; return whether all know what came of it."""
        request = self._request
        try:
            while request.Test():
                self._request = request = next(self._rounds)
        except StopIteration:
            return True
        return False

    def _tell(self) -> Steps:
        mine: Array = np.zeros(1, np.uint8)
        states = np.empty_like(self._states)
        while True:
            mine[0] = self.state
            yield from self._host.allgather(mine, states, [1] * self._host.size)
            self._states[:] = states
            if (states == _FAILED).any() or (states == _DONE).all():
                return
            yield _Pause(self)

    def late(self) -> Late:
        """Return on which ranks NCCL's initialisation has not ended."""
        ranks = tuple(np.flatnonzero(self._states == _PENDING).tolist())
        what = f"NCCL's initialisation has not ended on ranks {', '.join(map(str, ranks))}"
        return Late(what, ranks if len(ranks) < len(self._states) else ())

    def take(self) -> Any:
        """Return the communicator if NCCL is ready on all ranks, else None. **Local.**"""
        if (self._states != _DONE).any():
            self.abandon()
        comm, self._comm = self._comm, None
        return comm

    def abandon(self) -> None:
        """End what was made, or is being made. **Local.**

        A thread that NCCL holds goes on: CuPy cannot end it before NCCL has made something.
        """
        with self._lock:
            self._is_abandoned = True
            comm, self._comm = self._comm, None
        if comm is not None:
            comm.abort()


class _Pause:
    """A request that is complete after a moment, or at once when this rank has news."""

    def __init__(self, making: Making) -> None:
        self._making, self._state = making, making.state
        self._end = time.monotonic() + _ROUND_S

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self._making.state != self._state or time.monotonic() > self._end
