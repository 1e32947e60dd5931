"""All-reduce short arrays by one kernel, in which the GPUs wait for each other.

NCCL takes several steps, or the host a barrier, where this is one launch: each rank copies its
array to a slot that all have mapped, waits until all have, and reduces all slots. The kernels of
all ranks have to run at the same time, so each rank has a GPU of its own (choice.py).

A rank that is lost would leave the others in a kernel that nobody can end. So the kernels look at
a word in the host's memory, by which they are called off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Late, LateRequest, Steps
from mpistrat.collectives.backends.gpu.facts import Facts
from mpistrat.collectives.backends.gpu.kernels import reductions
from mpistrat.collectives.backends.gpu.memory.slabs import Slabs
from mpistrat.collectives.backends.gpu.streams import EventRequest, TransferStream
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.types import Array

__all__ = ["OneShotAllreduce"]

_LINE = 64  # bytes; the host's word and the kernel's are not on one
_PAGE = -(-reductions.FLAGS_NBYTES // 256) * 256
_PROBE_S, _PROBE_BYTES = 10.0, 16 << 10
_PROBE_ROUNDS = 3  # both slots, and one of them again
_END_S = 0.2  # a kernel that was called off ends in a few milliseconds


class OneShotAllreduce:
    """All-reduces of up to some bytes; opened, left and closed as a `Carrier`.

    Parameters
    ----------
    host
        The backend by which ranks meet when it is opened.
    everyone
        The facts of all ranks.
    stream
        The transfer stream of this rank's GPU.
    most_bytes
        The longest arrays; the same on all ranks.
    """

    name = "one_shot"

    def __init__(
        self, host: Backend, everyone: Sequence[Facts], stream: TransferStream, most_bytes: int
    ) -> None:
        self._host, self._stream = host, stream
        self.most_bytes, self._limit_bytes = most_bytes, most_bytes
        self._slot_bytes = -(-most_bytes // 256) * 256
        self._slabs = Slabs(host, everyone, _PAGE + 2 * self._slot_bytes)
        self._words: _Words | None = None
        self._shared: reductions.OneShot | None = None
        self._round = 0

    def open(self) -> str | None:
        """See `Carrier.open`."""
        import cupy

        try:
            self._words = _Words()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return f"no pinned memory: {error}"
        return self._slabs.open()

    def meet(self) -> Steps:
        """See `Carrier.meet`; a few numbers are reduced, to see whether that works here."""
        import cupy

        runtime = cupy.cuda.runtime
        # The flags begin as zeros, before any rank can map and write them.
        runtime.memsetAsync(self._slabs.mine, 0, _PAGE, self._stream.stream.ptr)
        yield self._stream.done()
        reason = yield from self._slabs.meet()
        yield self._stream.done()  # what the caller has queued may take longer than the deadline
        is_ready = np.array([reason is None], np.int64)
        yield from self._host.allreduce(is_ready, is_ready, "min")
        if not is_ready[0]:
            return reason
        self._shared = self._addresses()
        return (yield from self._stream.run(self._probe()))

    def _addresses(self) -> reductions.OneShot:
        words, slabs = self._its_words(), self._slabs.pointers
        first, second = (
            tuple(one + _PAGE + slot * self._slot_bytes for one in slabs) for slot in range(2)
        )
        return reductions.OneShot(
            self._host.rank, (first, second), tuple(slabs), words.cancel, words.missing
        )

    def _its_words(self) -> _Words:
        if self._words is None:
            raise AssertionError("open() comes first")
        return self._words

    def leave(self) -> Steps:
        """See `Carrier.leave`."""
        yield self._stream.done()
        self._slabs.leave()

    def tune(self, tuning: GpuTuning) -> None:
        """See `Carrier.tune`."""
        self._limit_bytes = min(tuning.one_shot_bytes, self.most_bytes)

    def abort(self) -> None:
        """Call off the kernel that waits for ranks which will not come. **Local.**"""
        if self._words is not None:
            self._words.call_off()

    def close(self) -> None:
        """See `Carrier.close`."""
        self._slabs.close()
        self._words = None

    # --------------------------------------------------------------------------------- calls

    def takes(self, send: Any) -> bool:
        """Tell whether an array is short enough; the same on all ranks."""
        return bool(send.nbytes <= self._limit_bytes)

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""
        self._launch(send, recv, op)
        yield _KernelRequest(self._its_words(), self._stream.record(), self._host.rank)

    def _launch(self, send: Any, recv: Any, op: str) -> None:
        if self._shared is None:
            raise AssertionError("meet() comes first")
        self._round += 1
        arrays = (send.data.ptr, recv.data.ptr)
        reductions.one_shot(self._shared, op, send.dtype, arrays, send.size, self._round)

    # --------------------------------------------------------------------------------- probe

    def _probe(self) -> Steps:
        """Reduce numbers by several blocks; return why that does not work here, or None.

        The ranks meet first, once each has compiled the kernel, so that a deadline can be short.
        """
        reason, mine, total = None, None, None
        try:
            reductions.one_shot_kernel("sum", np.dtype(np.int64))
            mine, total = self._numbers()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must not wait
            reason = f"its kernel cannot be launched: {type(error).__name__}: {error}"
        yield self._stream.done()  # what the caller has queued may take longer than the deadline
        is_ready = np.array([reason is None], np.int64)
        yield from self._host.allreduce(is_ready, is_ready, "min")
        if not is_ready[0]:
            return reason
        for _ in range(_PROBE_ROUNDS):
            self._launch(mine, total, "sum")
        request = _ProbeRequest(self._its_words(), self._stream.record())
        yield request
        if request.reason is None and not self._is_right(total):
            return "the memory of other ranks' GPUs does not hold what they have written"
        return request.reason

    def _numbers(self) -> tuple[Any, Any]:
        import cupy

        count = max(1, min(self.most_bytes, _PROBE_BYTES) // 8)
        mine = cupy.asarray(np.arange(count) * (self._host.rank + 1) + self._host.rank)
        return mine, cupy.asarray(np.zeros(count, np.int64))

    def _is_right(self, total: Any) -> bool:
        size = self._host.size
        want = np.arange(total.size) * (size * (size + 1) // 2) + size * (size - 1) // 2
        return bool((total.get() == want).all())


class _Words:
    """Two words in pinned memory: the host calls a kernel off, the kernel names a missing rank."""

    def __init__(self) -> None:
        import cupy

        memory = cupy.cuda.alloc_pinned_memory(2 * _LINE)
        self._words: Array = np.frombuffer(memory, np.uint32, 2 * _LINE // 4)
        self._words[:] = 0
        self.cancel, self.missing = memory.ptr, memory.ptr + _LINE

    def call_off(self) -> None:
        """End the kernels that wait, and those that will begin."""
        # A kernel that has not begun may do so at any later time: nobody else gets this memory.
        _CALLED_OFF.append(self)
        self._words[0] = 1

    @property
    def missing_rank(self) -> int | None:
        """A rank that a kernel waited for when it was called off."""
        word = int(self._words[_LINE // 4])
        return word - 1 if word else None


_CALLED_OFF: list[_Words] = []


class _KernelRequest(LateRequest):
    """Complete once the kernel is done."""

    def __init__(self, words: _Words, event: Any, rank: int) -> None:
        self._words, self._event, self._rank = words, EventRequest(event), rank

    def Test(self) -> bool:  # noqa: N802 - see Request
        """See `Request.Test`."""
        return self._event.Test()

    def late(self) -> Late:
        """Call the kernel off, and return which rank it has waited for."""
        self._words.call_off()
        end = time.monotonic() + _END_S
        while not self._event.Test():
            if time.monotonic() > end:
                return Late("the GPU of this rank has not come to it", (self._rank,))
            time.sleep(1e-3)
        missing = self._words.missing_rank
        if missing is None:
            return Late("it has ended just now", ())
        return Late(f"its kernel waits for the GPU of rank {missing}", (missing,))


class _ProbeRequest:
    """Complete once the kernels are done, at the latest after some seconds.

    Attributes
    ----------
    reason
        Why they did not end by themselves, or None.
    """

    def __init__(self, words: _Words, event: Any) -> None:
        self.reason: str | None = None
        self._words, self._event = words, EventRequest(event)
        self._deadline = time.monotonic() + _PROBE_S

    def Test(self) -> bool:  # noqa: N802 - see Request
        """See `Request.Test`; it calls the kernels off when their time is over."""
        if self._event.Test():
            if self.reason is not None and self._words.missing_rank is not None:
                self.reason += f"; rank {self._words.missing_rank} did not come"
            return True
        if time.monotonic() < self._deadline:
            return False
        if self.reason is not None:  # called off, and still running
            return True
        self.reason = f"a kernel has waited for other GPUs for {_PROBE_S:.0f} s"
        self._words.call_off()
        self._deadline = time.monotonic() + _END_S
        return False
