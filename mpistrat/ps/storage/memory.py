"""Allocate the memory of a shard: shared with other processes, or private.

The shared kind is a file in memory (``memfd``) that has no name: nothing is left behind, however
its owner ends, and the size of ``/dev/shm`` does not matter. Others open it through the owner's
``/proc`` entry for as long as the owner lives, and keep what they have mapped. Each takes two file
descriptors of the owner's and one of a reader's, and a quarter of them is left to others.
"""

from __future__ import annotations

import errno
import os
import resource
import weakref
from dataclasses import dataclass

import numpy as np

from mpistrat.cluster.topology import host_name
from mpistrat.collectives.backends.shared_memory import segment
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.kernels import kernels
from mpistrat.types import Array

__all__ = [
    "Extent",
    "PrivateMemory",
    "SharedMemory",
    "attach",
    "check_descriptor",
    "namespace",
]

_SHARED_BUFFERS = 8  # most of them are never there: room for views of six versions at once
_PRIVATE_BUFFERS = 4
_PAGE = 4096


@dataclass(frozen=True)
class Extent:
    """How large a store is: rows of bytes, and how many buffers."""

    num_rows: int
    row_bytes: int
    num_buffers: int

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return int(kernels().store_bytes(self.num_rows, self.row_bytes, self.num_buffers))

    def range_of(self, buffer: int) -> tuple[int, int]:
        """Return where a buffer's data are, start and bytes; of -1, what comes before them."""
        start, nbytes = kernels().store_range(
            self.num_rows, self.row_bytes, self.num_buffers, buffer
        )
        return int(start), int(nbytes)


class PrivateMemory:
    """Memory of this process; what is not written takes none."""

    def __init__(self, num_rows: int, row_bytes: int) -> None:
        self.extent = Extent(num_rows, row_bytes, _PRIVATE_BUFFERS)
        room = np.zeros(self.extent.nbytes + _PAGE, np.uint8)
        # A store begins with a page, for the kernels; NumPy aligns to less.
        self._bytes = room[-room.ctypes.data % _PAGE :][: self.extent.nbytes]
        self.address = self._bytes.ctypes.data

    def view(self, buffer: int) -> Array:
        """Return a buffer's data as bytes."""
        start, nbytes = self.extent.range_of(buffer)
        return self._bytes[start : start + nbytes]

    def allocate(self, buffer: int) -> None:
        """Do nothing: the system does it when the memory is written."""

    def discard(self, buffer: int) -> None:
        """Do nothing: it stays for the next time."""

    def close(self) -> None:
        """Do nothing: it goes with the last array that uses it."""


class SharedMemory:
    """A mapping of memory that its owner lets others map.

    Attributes
    ----------
    address
        Where it begins in this process.
    """

    def __init__(self, extent: Extent, mapped: segment.Segment) -> None:
        self.extent, self._segment = extent, mapped
        self.address = mapped.address
        self._release = weakref.finalize(self, mapped.release_name)

    @classmethod
    def create(cls, num_rows: int, row_bytes: int) -> SharedMemory:
        """Make memory of zeros.

        Raises
        ------
        OSError
            There is not enough memory, there are no such files, or too many.
        """
        extent = Extent(num_rows, row_bytes, _SHARED_BUFFERS)
        mapped = segment.create(extent.nbytes)
        # Before the checks: if one raises, its finalizer closes the descriptor.
        made = cls(extent, mapped)
        check_descriptor(mapped.descriptor)
        made.allocate(-1)
        return made

    def close(self) -> None:
        """Let no others map it any more; what is mapped stays. Idempotent."""
        self._release()

    def where(self) -> tuple[Extent, str, str]:
        """Return what `attach` wants to know."""
        return self.extent, self._segment.path, self._segment.nonce

    def view(self, buffer: int) -> Array:
        """Return a buffer's data as bytes, which keep it mapped."""
        return self._segment.view(*self.extent.range_of(buffer))

    def allocate(self, buffer: int) -> None:
        """Allocate a buffer's data in full, so that there is an error now or none.

        Raises
        ------
        OSError
            There is not enough memory.
        """
        start, nbytes = self.extent.range_of(buffer)
        if nbytes:
            self._segment.allocate(start, nbytes)

    def discard(self, buffer: int) -> None:
        """Give a buffer's memory back."""
        start, nbytes = self.extent.range_of(buffer)
        if nbytes:
            self._segment.discard(start, nbytes)


def check_descriptor(fd: int) -> None:
    """Raise `OSError` if the lowest descriptor that was free is near the limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and fd > limit * 3 // 4:
        raise OSError(errno.EMFILE, f"{fd} of {limit} file descriptors are in use (ulimit -n)")


def namespace() -> str:
    """Return a name of this machine and PID namespace, in which process ids are unique."""
    try:
        return f"{host_name()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return host_name()


def attach(where: tuple[Extent, str, str]) -> SharedMemory:
    """Map what another process of this machine has made.

    Raises
    ------
    BackendUnavailableError
        The owner has ended, or this process may not look into it.
    """
    extent, path, nonce = where
    try:
        mapped = segment.open_existing(path, extent.nbytes, nonce)
    except OSError as error:
        raise BackendUnavailableError(
            f"cannot map the shard's memory: {error}; its owner has ended, or is hidden from this"
            " process; ask the owner for copies"
        ) from error
    # The mapping has a descriptor of its own; this one would count against the limit as well.
    mapped.release_name()
    return SharedMemory(extent, mapped)
