"""Agree on the registered memory of all ranks that a transfer can read and write in place.

Headers of all-reduces tell that, if it is at one place in the memory of each rank; else, and for
other transfers, the ranks exchange their places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.carriers.transfer_barrier import TransferBarrier
from mpistrat.collectives.backends.gpu.memory.registered import (
    APART,
    NOWHERE,
    PLAIN,
    Place,
    Regions,
    code_of,
    places_of,
)
from mpistrat.collectives.backends.gpu.streams import TransferStream

__all__ = ["Places", "RegisteredPlaces"]


class Places(NamedTuple):
    """Where the memory is that each rank sends from and receives in, in its registered memory."""

    sends: list[Place]
    recvs: list[Place]

    @property
    def are_in_place(self) -> bool:
        """Whether some rank receives where it sends from."""
        return any(send == recv != NOWHERE for send, recv in zip(*self, strict=True))


class RegisteredPlaces:
    """What one rank knows of the places of all ranks.

    Parameters
    ----------
    host
        The backend by which ranks exchange places.
    regions
        Registered memory of all ranks.
    stream
        The transfer stream of this rank's GPU.
    """

    def __init__(self, host: Backend, regions: Regions, stream: TransferStream) -> None:
        self._host, self._regions, self._stream = host, regions, stream
        self._barrier = TransferBarrier(host, stream)
        self._agreed: int | None = None  # of the all-reduce that begins next

    def encode(self, send: Any, recv: Any) -> int:
        """Return the code of the places of an all-reduce's arrays. **Local.**"""
        if self._regions.are_none:
            return PLAIN
        return code_of(self._regions.find(send), self._regions.find(recv))

    def set_agreed(self, code: int | None) -> None:
        """Keep the code of all ranks for the all-reduce that begins next. **Local.**"""
        self._agreed = code

    def take_agreed(self) -> int | None:
        """Return the code for the all-reduce that begins now, and forget it. **Local.**"""
        code, self._agreed = self._agreed, None
        return code

    def of_allreduce(self, code: int | None, send: Any, recv: Any) -> Steps:
        """Return the same as :meth:`exchange`, from the `code` of all ranks if they have one."""
        if code is None or code == APART:
            return (yield from self.exchange(send, recv))
        if code == PLAIN:
            return None
        # A header alone is no leave to write to the memory of its rank, which may have given up.
        yield from self._barrier.wait()
        mine, size = places_of(code), self._host.size
        return Places([mine[0]] * size, [mine[1]] * size)

    def sends(self, send: Any | None, root: int | None = None) -> Steps:
        """Return the addresses of what the ranks send, or `root` alone, if all is registered."""
        places = yield from self.exchange(send, None)
        if places is None:
            return None
        if root is None:
            return self.addresses(places.sends)
        place = places.sends[root]
        address = None if place == NOWHERE else self._regions.address(root, place)
        return None if address is None else [address] * self._host.size

    def addresses(self, places: list[Place]) -> list[int] | None:
        """Return the addresses of all ranks' places in this process; None if one has none."""
        if NOWHERE in places:
            return None
        return [self._regions.address(rank, place) for rank, place in enumerate(places)]

    def exchange(self, send: Any | None, recv: Any | None) -> Steps:
        """Return where all ranks' memory is, once all is written; None if none is registered.

        **Collective**, but only where some memory has been registered.
        """
        if self._regions.are_none:
            return None
        mine = [NOWHERE if one is None else self._regions.find(one) for one in (send, recv)]
        table = np.empty((self._host.size, 2, 2), np.int64)
        yield self._stream.done()
        yield from self._host.allgather(
            np.array(mine, np.int64).reshape(-1), table.reshape(-1), [4] * self._host.size
        )
        sends, recvs = ([Place(*one) for one in table[:, side].tolist()] for side in (0, 1))
        return Places(sends, recvs)
