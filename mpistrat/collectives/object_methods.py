"""The collectives of Python objects as methods: signatures and documentation."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpistrat.collectives.native_methods import made_natively
from mpistrat.collectives.operations import objects
from mpistrat.collectives.operations.pickling import pack
from mpistrat.collectives.starting import Starts
from mpistrat.collectives.work import Work
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.collectives.checking.gate import Gate

__all__ = ["ObjectMethods"]


def _remaining_s(timeout: float | None, began_s: float) -> float | None:
    return None if timeout is None else max(timeout - (time.monotonic() - began_s), 0.0)


class ObjectMethods(Starts):
    """The methods of a `Communicator` that send objects; see there for what they share."""

    _gate: Gate

    def bcast_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Return the root's `value` on every rank; pickled, so for small Python objects.

        One call if the pickled object has at most 504 bytes; else two.
        """
        began_s, data = time.monotonic(), b""
        if self._gate.rank == root:
            try:
                data = pack(value)
            except Exception as error:  # noqa: BLE001 - the peers must hear of it, whatever it is
                return self._start(objects.fail, error).wait(timeout)
        frame = self._bcast_bytes(
            objects.frame_of(data, objects.FRAME_BYTES), root, timeout=timeout
        )
        length = objects.length_in(frame)
        if objects.is_framed(length, frame.nbytes):
            return objects.unpack_frame(frame)
        mine = objects.whole(data, length)
        copy = self._bcast_bytes(mine, root, timeout=_remaining_s(timeout, began_s))
        return pickle.loads(copy.data)

    def allgather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Return the list of all ranks' values, by rank; pickled, for small Python objects.

        One call if each pickled object has at most 504 bytes, or 56 on more than 32 ranks; else
        two.
        """
        began_s = time.monotonic()
        try:
            data = pack(value)
        except Exception as error:  # noqa: BLE001 - as above
            refused: Work[list[Any]] = self._start(objects.fail, error)
            return refused.wait(timeout)
        nbytes = objects.gathered_frame_bytes(self._gate.size)
        gathered = self._allgather_bytes(objects.frame_of(data, nbytes), timeout=timeout)
        frames = gathered.reshape(-1, nbytes)
        lengths = [objects.length_in(frame) for frame in frames]
        if all(objects.is_framed(length, nbytes) for length in lengths):
            return [objects.unpack_frame(frame) for frame in frames]
        return self._allgather_whole(data, lengths, _remaining_s(timeout, began_s))

    def _allgather_whole(
        self, data: bytes, lengths: Sequence[int], timeout: float | None
    ) -> list[Any]:
        longest = max(lengths)
        if longest * len(lengths) <= 2 * sum(lengths):  # native calls have blocks of one length
            found = self._allgather_bytes(objects.whole(data, longest), timeout=timeout)
            rows = list(found.reshape(-1, longest))
        else:
            mine = objects.whole(data, len(data))
            work: Work[Array] = self._start(objects.allgather_ragged, mine, lengths)
            rows = np.split(work.wait(timeout), np.cumsum(lengths[:-1]))
        return [pickle.loads(row[:length].data) for row, length in zip(rows, lengths, strict=True)]

    @made_natively
    def _bcast_bytes(
        self, array: Array, root: int, *, out: Array | None = None, timeout: float | None = None
    ) -> Array:
        work: Work[Array] = self._start(objects.bcast_bytes, array, root, out)
        return work.wait(timeout)

    @made_natively
    def _allgather_bytes(
        self, array: Array, *, out: Array | None = None, timeout: float | None = None
    ) -> Array:
        work: Work[Array] = self._start(objects.allgather_bytes, array, out)
        return work.wait(timeout)
