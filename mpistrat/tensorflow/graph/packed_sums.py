"""Start all-reduces of lists of arrays; short ones are concatenated once the ranks know them.

A list is compared over the ranks, shape by shape. A short one that was equal on all ranks is sent
as one array from then on, which costs less.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives import Communicator
from mpistrat.collectives.progress.work import Work
from mpistrat.tensorflow.graph.tensor_collective import Finish, Start
from mpistrat.types import Array

__all__ = ["SHORT_BYTES", "PackedSums", "start_one"]

SHORT_BYTES = 16 << 10  # of what is sent in one array
_MOST_PACKED = 1000  # lists
_NUM_FORMS = 61  # of packed lists; a prime, so that rows seldom come out alike


class PackedSums:
    """The all-reduces of lists of one bridge.

    Parameters
    ----------
    communicator
        The communicator of the strategy.
    bytes_per_pack
        Of lists that are sent as such, in packs.
    """

    def __init__(self, communicator: Communicator, bytes_per_pack: int) -> None:
        self._communicator, self._bytes_per_pack = communicator, bytes_per_pack

    def start_of(self, op: str) -> Start:
        """Return the start of an all-reduce, which knows its own lists only. **Local.**"""

        def start(sources: list[Array], results: list[Array]) -> Finish | None:
            if len(sources) == 1:
                return start_one(self._communicator, sources[0], results[0], op)
            arrays = tuple((source.dtype, source.shape) for source in sources)
            # Their shapes were compared once, so one array without them is enough from then on.
            if arrays in packed:
                return self._start_packed(sources, results, op, packed[arrays])
            pack = self._bytes_per_pack
            work = self._communicator.iallreduce_many(sources, op, bucket_bytes=pack, out=results)

            def finish(timeout: float | None) -> None:
                # All ranks add the list at the end of the same call, so that all pack the next
                # one: it begins after that end. Eager calls wait for it, those of a graph follow
                # each other (ordering.py), and two threads give their calls one order on all ranks
                # only by waiting for the end of one before the other begins.
                work.wait(timeout)
                if _may_be_packed(sources) and len(packed) < _MOST_PACKED:
                    # Not hash(), which differs between processes for the strings in it.
                    packed[arrays] = 1 + zlib.crc32(repr(arrays).encode()) % _NUM_FORMS

            return finish

        packed: dict[Any, int] = {}  # short lists that were equal on all ranks once; in what form
        return start

    def _start_packed(
        self, sources: list[Array], results: list[Array], op: str, num_rows: int
    ) -> Finish | None:
        """Concatenate short arrays, which costs less than a list whose shapes are compared.

        Lists that differ in their shapes alone are told apart by the rows of what is reduced.
        """
        size = sum(source.size for source in sources)
        shape = (num_rows, -(-size // num_rows))
        send, total = np.zeros(shape, sources[0].dtype), np.empty(shape, sources[0].dtype)
        np.concatenate([np.ravel(one) for one in sources], out=send.reshape(-1)[:size])
        finish = start_one(self._communicator, send, total, op)
        sums = total.reshape(-1)

        def deliver(timeout: float | None) -> None:
            if finish is not None:
                finish(timeout)
            start = 0
            for result in results:
                result[...] = sums[start : start + result.size].reshape(result.shape)
                start += result.size

        if finish is not None:
            return deliver
        deliver(None)
        return None


def start_one(communicator: Communicator, source: Array, result: Array, op: str) -> Finish | None:
    """Start an all-reduce of one array; see `Start`."""
    begun = communicator.allreduce_soon(source, op, out=result)
    return begun.wait if isinstance(begun, Work) else None


def _may_be_packed(sources: Sequence[Array]) -> bool:
    is_one_dtype = all(source.dtype == sources[0].dtype for source in sources)
    return is_one_dtype and sum(source.nbytes for source in sources) <= SHORT_BYTES
