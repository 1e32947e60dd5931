"""Memory that the ranks of one machine share: made by one of them, mapped by all.

It has no name that could be left behind: a file in memory (``memfd``), which the others open
through the maker's ``/proc`` entry; or, where that is forbidden, one in ``/dev/shm`` that is
unlinked as soon as all have mapped it. Every rank allocates its part at once: so a ``/dev/shm``
that is too small is an error then, and no SIGBUS later; and the part is near the rank's processor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from pathlib import Path

import numpy as np

from mpistrat.types import Array

__all__ = ["Segment", "create", "open_existing"]

_NONCE_BYTES = 16
_PAGE = mmap.PAGESIZE
_HUGE_PAGE = 2 << 20
_POPULATE_WRITE = 23  # of madvise, Linux 5.14


class Segment:
    """A mapping of shared memory; its last bytes are a nonce that proves what it is.

    Attributes
    ----------
    path
        Where other processes of this machine can open it.
    nbytes
        Bytes that can be used.
    address
        Where it begins in this process.
    """

    def __init__(self, fd: int, path: str, nbytes: int) -> None:
        self.path = path
        self.nbytes = nbytes
        self._fd = fd
        self._map = mmap.mmap(fd, nbytes + _NONCE_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    @property
    def descriptor(self) -> int:
        """The file, until :meth:`release_name`; the mapping holds another one."""
        return self._fd

    @property
    def nonce(self) -> str:
        """Hexadecimal digits that no other segment has."""
        return self._map[self.nbytes :].hex()

    def reserve(self, part: int, parts: int) -> None:
        """Allocate one of `parts` equal parts.

        Raises
        ------
        OSError
            There is not enough memory.
        """
        pages = -(-self.nbytes // _PAGE)
        start = pages * part // parts * _PAGE
        # Not beyond its end: it would grow, and those who open it later take it for another file.
        end = min(pages * (part + 1) // parts * _PAGE, self.nbytes + _NONCE_BYTES)
        if end > start:
            self.allocate(start, end - start)

    def allocate(self, start: int, nbytes: int) -> None:
        """Allocate a range that begins with a page.

        Raises
        ------
        OSError
            There is not enough memory.
        """
        if not self._touch(start, nbytes):
            os.posix_fallocate(self._fd, start, nbytes)

    def discard(self, start: int, nbytes: int) -> None:
        """Give back the memory of a range that begins with a page; it reads as zeros then."""
        self._map.madvise(mmap.MADV_REMOVE, start, nbytes)

    def _touch(self, start: int, nbytes: int) -> bool:
        """Allocate a range in huge pages if the system has them; return False if it can't."""
        try:
            if self.nbytes >= _HUGE_PAGE:  # a smaller one would take a whole such page
                self._map.madvise(mmap.MADV_HUGEPAGE)
            self._map.madvise(_POPULATE_WRITE, start, nbytes)
        except (AttributeError, OSError):  # too old, or full: the other way says which
            return False
        return True

    def view(self, start: int, nbytes: int) -> Array:
        """Return a range as an array of bytes, which keeps the segment mapped."""
        return np.asarray(_Range(self, start, nbytes))

    def release_name(self) -> None:
        """Make it unreachable for others; to be called once all have mapped and reserved it."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        if not self.path.startswith("/proc/"):
            Path(self.path).unlink(missing_ok=True)


def create(nbytes: int, in_memory: bool = True) -> Segment:
    """Make a segment of zeros.

    Parameters
    ----------
    nbytes
        Bytes that can be used.
    in_memory
        Whether it is a ``memfd``; else a file in ``/dev/shm``.

    Raises
    ------
    OSError
        There is not enough memory, or the system has no such files.
    """
    if in_memory:
        if not hasattr(os, "memfd_create"):  # this Python was built for systems without it
            raise OSError("this Python has no os.memfd_create")
        fd = os.memfd_create("mpistrat")
        path = f"/proc/{os.getpid()}/fd/{fd}"
    else:
        path = f"/dev/shm/mpistrat-{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.truncate(fd, nbytes + _NONCE_BYTES)
        os.posix_fallocate(fd, nbytes, _NONCE_BYTES)
        os.pwrite(fd, secrets.token_bytes(_NONCE_BYTES), nbytes)
        return Segment(fd, path, nbytes)
    except BaseException:
        os.close(fd)
        if not in_memory:
            Path(path).unlink(missing_ok=True)
        raise


def open_existing(path: str, nbytes: int, nonce: str) -> Segment:
    """Map the segment that another process of this machine has made.

    Raises
    ------
    OSError
        It cannot be opened from here, or it is not the one that has `nonce`.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Elsewhere, such as in another PID namespace, the path may name another process's file.
        if os.fstat(fd).st_size != nbytes + _NONCE_BYTES:
            raise OSError(f"{path} is another file here")
        segment = Segment(fd, path, nbytes)
        if segment.nonce != nonce:
            raise OSError(f"{path} is another segment here")
    except BaseException:
        os.close(fd)
        raise
    return segment


class _Range:
    """Memory of a segment, as NumPy takes it in."""

    def __init__(self, segment: Segment, start: int, nbytes: int) -> None:
        self._segment = segment
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (segment.address + start, False),
        }
