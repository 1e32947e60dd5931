"""Registered memory on GPUs: arrays of the user's that every rank of a node has mapped.

A region has a part on each rank. It is made by all ranks together, and freed once none of them
uses its array any more; that is looked after when the next region is made, since all ranks must
forget a region in the same call. What is still used when the communicator is closed belongs to
the array from then on: no other rank has it mapped any more.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.all_or_none import opened, reasons, said
from mpistrat.collectives.backends.gpu.facts import Facts, exchange_bytes
from mpistrat.collectives.backends.gpu.memory.slabs import Slabs
from mpistrat.errors import BackendUnavailableError

__all__ = ["APART", "NOWHERE", "PLAIN", "Place", "Regions", "code_of", "places_of"]

_LENGTH_BYTES = 20  # of a number in decimals


class Place(NamedTuple):
    """Where memory of this rank is: in which region, and how many bytes behind its beginning."""

    region: int
    offset: int


NOWHERE = Place(-1, 0)
"""The place of memory that is not registered."""

_EMPTY = Place(0, 0)  # of what has no bytes: all of it is readable

PLAIN, APART = 0, 1
"""Codes of arrays of which none is registered, and of those whose places are told otherwise."""

_REGION_BITS, _OFFSET_BITS = 8, 37  # a code has to be below 2 ** 54 (device_gate.py)


def code_of(send: Place, recv: Place) -> int:
    """Return a number for the places of two arrays, which fits into a header."""
    if send == recv == NOWHERE:
        return PLAIN
    regions = send.region, recv.region
    is_alike = send.offset == recv.offset < 1 << _OFFSET_BITS
    if not is_alike or min(regions) < 0 or max(regions) >= 1 << _REGION_BITS:
        return APART
    both = regions[0] << _REGION_BITS | regions[1]
    return (both << _OFFSET_BITS | send.offset) + APART + 1


def places_of(code: int) -> tuple[Place, Place]:
    """Return the places that a code is for; not of `PLAIN` and `APART`."""
    both, offset = divmod(code - APART - 1, 1 << _OFFSET_BITS)
    regions = divmod(both, 1 << _REGION_BITS)
    return Place(regions[0], offset), Place(regions[1], offset)


class _Owner:
    """What all views of a region's array keep alive."""


class _Region(NamedTuple):
    slabs: Slabs
    drop: weakref.finalize[[int], _Owner]


class Regions:
    """The registered memory of the ranks of one carrier.

    Parameters
    ----------
    host
        The backend over which handles are exchanged.
    everyone
        The facts of all ranks.
    """

    def __init__(self, host: Backend, everyone: Sequence[Facts]) -> None:
        self._host, self._everyone = host, everyone
        self._regions: dict[int, _Region] = {}  # by number from 1, the same on all ranks
        self._made = 0
        self._unused: set[int] = set()

    @property
    def are_none(self) -> bool:
        """Whether there is no registered memory; the same on all ranks."""
        return not self._regions

    def allocate(self, nbytes: int) -> Steps:
        """Return this rank's part of a new region, as an array of bytes. **Collective.**

        Raises
        ------
        BackendUnavailableError
            On all ranks: some have not enough memory, or cannot map that of others.
        """
        yield from self._forget()
        slabs = Slabs(self._host, self._everyone, nbytes)
        found = yield from opened(self._host, slabs)
        if found:
            raise BackendUnavailableError(f"empty: no registered memory: {said(found)}")
        self._made += 1
        owner = _Owner()
        # In any thread, and at any time: so only a number is noted then, in one atomic step.
        drop = weakref.finalize(owner, self._unused.add, self._made)
        drop.atexit = False
        self._regions[self._made] = _Region(slabs, drop)
        return slabs.owned(owner)

    def _forget(self) -> Steps:
        """Free the regions that no rank uses any more. **Collective.**"""
        mine = ",".join(map(str, sorted(self._unused))).encode()
        lengths = yield from exchange_bytes(self._host, str(len(mine)).encode(), _LENGTH_BYTES)
        if not all(map(int, lengths)):  # some rank uses all of them
            return
        rows = yield from exchange_bytes(self._host, mine, max(map(int, lengths)))
        sets = [{int(one) for one in row.decode().split(",") if one} for row in rows]
        gone = sorted(set.intersection(*sets))
        if not gone:
            return
        for number in gone:
            self._regions[number].slabs.leave()
        yield from reasons(self._host, None)  # all have left
        for number in gone:
            self._unused.discard(number)
            self._regions.pop(number).slabs.close()

    # ------------------------------------------------------------------------------ addresses

    def find(self, array: Any) -> Place:
        """Return where a contiguous array is. **Local.**"""
        if not array.nbytes:
            return _EMPTY
        for number, region in self._regions.items():
            offset = array.data.ptr - region.slabs.mine
            if offset >= 0 and offset + array.nbytes <= region.slabs.nbytes:
                return Place(number, offset)
        return NOWHERE

    def address(self, rank: int, place: Place) -> int:
        """Return the address in this process of memory of a rank, at a place of its own."""
        if place == _EMPTY:
            return 0
        return self._regions[place.region].slabs.pointers[rank] + place.offset

    # ------------------------------------------------------------------------------------ end

    def leave(self) -> None:
        """Close the memory of the other ranks. **Local.**"""
        for region in self._regions.values():
            region.slabs.leave()

    def close(self) -> None:
        """Free what no array uses, and leave the rest to the arrays. **Local.**"""
        while self._regions:
            _, (slabs, drop) = self._regions.popitem()
            found = drop.detach()
            if found is None:
                slabs.close()
            else:
                weakref.finalize(found[0], _free, slabs).atexit = False


def _free(slabs: Slabs) -> None:
    """Free memory whose last array is gone; a GPU that is lost has none."""
    import cupy

    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
        slabs.close()
