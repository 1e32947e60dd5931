"""Pinned memory of the host that short arrays are copied to from GPUs, and results from."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.gpu_streams import is_of_one_thread
from mpistrat.collectives.backends.gpu.streams import DONE
from mpistrat.types import Array

__all__ = ["MAX_KINDS", "HostSlot", "Kind", "is_over"]

MAX_KINDS = 256
"""Kinds of calls that are remembered at a time."""

Kind: TypeAlias = tuple[str, np.dtype[Any], tuple[int, ...]]
"""The op, and the dtype and shape of an array."""


class HostSlot:
    """Memory of the host for what one call sends and for what comes of it.

    Parameters
    ----------
    nbytes
        Length of each.
    region
        Memory to use for both, or None for new memory of this rank alone.

    Attributes
    ----------
    runtime
        CuPy's module of that name.
    event, event_at
        When the copies to and from it are done; its address.
    down_at, up_at
        Addresses: of what is sent, and of what comes of it.
    """

    def __init__(self, nbytes: int, region: Array | None) -> None:
        import cupy

        _give_up_parked()
        self.runtime = cupy.cuda.runtime
        self.event = cupy.cuda.Event(disable_timing=True)
        self.event_at = self.event.ptr
        self._last_stream: Callable[[], Any] = _none
        if region is None:
            self.down, self.up = _host_memory(nbytes), _host_memory(nbytes)
        else:
            self.down, self.up = region[:nbytes], region[nbytes : 2 * nbytes]
        self.down_at, self.up_at = self.down.ctypes.data, self.up.ctypes.data
        self._views: dict[Kind, tuple[Array, Array]] = {}
        # Not its __del__: in a cycle of garbage the event could be destroyed before.
        end = weakref.finalize(self, _park, self.event, self.down, self.up, os.getpid())
        end.atexit = False

    def is_before(self, stream: Any) -> bool:
        """Tell whether all copies to and from it come before what is queued on a stream now.

        False says no more than that its event has to be looked at.
        """
        # Not by the address, which a new stream may have of one that was destroyed meanwhile.
        return self._last_stream() is stream

    def note(self, stream: Any) -> None:
        """Take note of the stream of the copies from now on."""
        if self._last_stream() is not stream:
            self._last_stream = _none if is_of_one_thread(stream) else weakref.ref(stream)

    def views(self, kind: Kind) -> tuple[Array, Array]:
        """Return the send and result memory as arrays of a kind's dtype and shape."""
        views = self._views.get(kind)
        if views is None:
            if len(self._views) >= MAX_KINDS:
                self._views.clear()
            views = self.view(self.down, *kind[1:]), self.view(self.up, *kind[1:])
            self._views[kind] = views
        return views

    @staticmethod
    def view(memory: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over the beginning of the memory."""
        return np.ndarray(shape, dtype, memory)


def _none() -> None:
    """Stand for the stream of a slot that no stream is known of."""


_parked: list[tuple[Any, Array, Array]] = []  # of slots that are gone, until the event is over


def _park(event: Any, down: Array, up: Array, process: int) -> None:
    """Keep memory that a GPU still reads or writes from being lent out again."""
    if os.getpid() == process and not is_over(event, 1, _runtime()):
        _parked.append((event, down, up))


def _give_up_parked() -> None:
    _parked[:] = [one for one in _parked if not is_over(one[0], 1, _runtime())]


def _runtime() -> Any:
    import cupy

    return cupy.cuda.runtime


def _host_memory(nbytes: int) -> Array:
    """Return pinned memory; where none is left, copies take longer."""
    pinned = _pinned(nbytes)
    return np.empty(nbytes, np.uint8) if pinned is None else pinned


def _pinned(nbytes: int) -> Array | None:
    import cupy

    try:
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
    except cupy.cuda.runtime.CUDARuntimeError:
        return None


def is_over(event: Any, looks: int, runtime: Any) -> bool:
    """Look for a moment whether an event has happened; a failure is the general way's to tell."""
    query, pointer = runtime.eventQuery, event.ptr
    for _ in range(looks):  # noqa: SIM110 - a generator takes 1 µs longer, on the way of a call
        if query(pointer) == DONE:
            return True
    return False
