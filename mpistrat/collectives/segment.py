"""Memory that the ranks of one machine share: made by one of them, mapped by all.

It has no name that could be left behind: a file in memory (``memfd``), which the others open
through the maker's ``/proc`` entry; or, where that is forbidden, one in ``/dev/shm`` that is
unlinked as soon as all have mapped it. It is allocated in full when it is made, so that a
``/dev/shm`` that is too small is an error then, and no SIGBUS later.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from pathlib import Path

__all__ = ["Segment", "create", "open_existing"]

_NONCE_BYTES = 16


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
    def nonce(self) -> str:
        """Hexadecimal digits that no other segment has."""
        return self._map[self.nbytes :].hex()

    def release_name(self) -> None:
        """Make it unreachable for others; to be called once all have mapped it."""
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
        fd = os.memfd_create("mpistrat")
        path = f"/proc/{os.getpid()}/fd/{fd}"
    else:
        path = f"/dev/shm/mpistrat-{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, nbytes + _NONCE_BYTES)
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
        if os.fstat(fd).st_size != nbytes + _NONCE_BYTES:
            raise OSError(f"{path} is another file here")
        segment = Segment(fd, path, nbytes)
    finally:
        os.close(fd)
    segment._fd = -1
    if segment.nonce != nonce:
        raise OSError(f"{path} is another segment here")
    return segment
