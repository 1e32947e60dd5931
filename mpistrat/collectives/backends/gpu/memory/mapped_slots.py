"""Slots of mapped memory, which transfers take in turn; one can be lent to who packs a list.

A list is packed straight into a slot, reduced there by all ranks, each a slice, and unpacked from
there: no rank copies what it has packed to mapped memory first.
"""

from __future__ import annotations

from typing import Any

from mpistrat.collectives.backends.gpu.memory.slabs import Slabs
from mpistrat.collectives.backends.gpu.streams import TransferStream

__all__ = ["MappedSlots", "NoSlots"]

_ALIGNMENT = 256  # bytes


class MappedSlots:
    """Four slots on the GPU of each rank: two for what is sent, two for slices of results.

    All ranks take them in the same order.

    Parameters
    ----------
    slabs
        Memory of all ranks.
    stream
        The transfer stream of this rank's GPU.

    Attributes
    ----------
    nbytes
        Length of a slot.
    """

    def __init__(self, slabs: Slabs, stream: TransferStream) -> None:
        self._slabs, self._stream = slabs, stream
        self.nbytes = slabs.nbytes // 4 // _ALIGNMENT * _ALIGNMENT
        self._next = 0
        self._lent: int | None = None

    def take(self) -> int:
        """Return the offset of the next slot for what is sent; the one after that is the other."""
        offset, self._next = self._next * self.nbytes, 1 - self._next
        return offset

    def mine(self, offset: int) -> int:
        """Return the address of this rank's slot."""
        return self._slabs.mine + offset

    def everyone(self, offset: int) -> list[int]:
        """Return the addresses of all ranks' slots, in this process."""
        return [pointer + offset for pointer in self._slabs.pointers]

    def for_results(self, offset: int) -> int:
        """Return the offset of the slot for the results of what a slot has been sent."""
        return offset + 2 * self.nbytes

    # ---------------------------------------------------------------------------------- lending

    def lend(self, nbytes: int) -> Any:
        """Return bytes of a slot, an array of CuPy, to write and read on the current stream.

        Whoever has it makes an all-reduce in place of all of it, then calls :meth:`take_back`.
        Nobody uses the slot any more: whatever was done in it was over when the ranks met for the
        other one.
        """
        if nbytes > self.nbytes:
            raise AssertionError(f"{nbytes} bytes of a slot; it has {self.nbytes}")
        self._lent = self.take()
        return self._slabs.owned(self)[self._lent : self._lent + nbytes]

    def take_back(self) -> None:
        """Use what was lent again, behind what is queued on the current stream now."""
        self._lent = None
        self._stream.follow()

    def lent(self, send: Any, recv: Any) -> list[int] | None:
        """Return the addresses of all ranks' arrays, if these are what was lent; else None."""
        if self._lent is None or send.data.ptr != recv.data.ptr:
            return None
        return self.everyone(self._lent) if send.data.ptr == self.mine(self._lent) else None


class NoSlots:
    """What ranks have that map no memory of each other: nothing to lend.

    Attributes
    ----------
    nbytes
        As of `MappedSlots`: 0.
    """

    nbytes = 0

    def lend(self, nbytes: int) -> Any:
        """Raise `AssertionError`."""
        raise AssertionError(f"{nbytes} bytes of mapped memory; there is none")

    def take_back(self) -> None:
        """Do nothing."""
