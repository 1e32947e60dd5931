"""Give the kernels the functions of the MPI library that mpi4py has loaded.

The addresses of a few functions and the values of a few handles are all that they need
(kernels/mpi/messages.h says why that fits every library).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Any

__all__ = ["describe", "why_not"]

_FUNCTIONS = ("MPI_Isend", "MPI_Irecv", "MPI_Testsome")
_MACHINES = ("x86_64", "amd64", "aarch64", "arm64")


def why_not(mpi: Any) -> str | None:
    """Return why the functions of `mpi` (the module ``mpi4py.MPI``) cannot be called, or None."""
    machine = platform.machine().lower()
    if machine not in _MACHINES or sys.byteorder != "little" or sys.maxsize < 2**32:
        return f"the kernels cannot call MPI on {machine or 'this machine'}"
    try:
        _addresses(mpi)
    except (AttributeError, OSError) as error:
        return (
            f"the functions of {mpi.Get_library_version().splitlines()[0]!r} are hidden: {error}"
        )
    return None


def describe(mpi: Any, comm: Any, first_tag: int) -> list[int]:
    """Return what MpistratMpi consists of (kernels/include/mpistrat/wire.h)."""
    # Signed, as C has them: an int's sign fills the upper half.
    handles = [ctypes.c_ssize_t(mpi._handleof(of)).value for of in (mpi.BYTE, comm)]
    nbytes = [mpi._sizeof(mpi.Request), mpi._sizeof(mpi.Status)]
    return [*_addresses(mpi), *handles, *nbytes, first_tag]


def _addresses(mpi: Any) -> list[int]:
    """Find the functions as mpi4py's own module does: in the library that it was linked to."""
    library = ctypes.CDLL(mpi.__file__)
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return [address for address in found if address is not None]
