"""Helpers of the programs of ranks: MPI, communicators, memory, waits with deadlines."""

import ctypes
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import cupy
import ml_dtypes
import numpy as np
from cupy.cuda import nccl
from mpi4py import MPI

cupy.cuda.Device(int(os.environ.get("ON_DEVICE", "0"))).use()
WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
FLOAT, INT = nccl.NCCL_FLOAT32, nccl.NCCL_INT32
SUM = nccl.NCCL_SUM
INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS = 4, 5, 6, 7

DTYPES: dict[int, np.dtype] = {
    nccl.NCCL_INT8: np.dtype("int8"),
    nccl.NCCL_UINT8: np.dtype("uint8"),
    nccl.NCCL_INT32: np.dtype("int32"),
    nccl.NCCL_UINT32: np.dtype("uint32"),
    nccl.NCCL_INT64: np.dtype("int64"),
    nccl.NCCL_UINT64: np.dtype("uint64"),
    nccl.NCCL_FLOAT16: np.dtype("float16"),
    nccl.NCCL_FLOAT32: np.dtype("float32"),
    nccl.NCCL_FLOAT64: np.dtype("float64"),
    nccl.NCCL_BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}

# CuPy has no name for ncclGetLastError, ncclCommFinalize and ncclConfig_t.blocking.
LIBRARY = ctypes.CDLL("librccl.so.1")
LIBRARY.ncclGetLastError.restype = ctypes.c_char_p
for _name in ("Destroy", "Finalize", "Abort"):
    getattr(LIBRARY, f"ncclComm{_name}").argtypes = [ctypes.c_void_p]
LIBRARY.ncclCommGetAsyncError.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]


class Config(ctypes.Structure):
    """The start of ncclConfig_t."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("rest", ctypes.c_int * 5),
    ]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def communicator() -> nccl.NcclCommunicator:
    """Return a new communicator of all ranks."""
    return nccl.NcclCommunicator(RANKS, shared_id(), RANK)


def shared_id() -> bytes:
    """Return a unique id of rank 0."""
    return WORLD.bcast(nccl.get_unique_id() if RANK == 0 else None)


def begin_without_blocking(unique_id: bytes, ranks: int, rank: int) -> int:
    """Begin to make a non-blocking communicator; return its handle."""
    handle = ctypes.c_void_p()
    config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 22606, 0)
    result = LIBRARY.ncclCommInitRankConfig(
        ctypes.byref(handle),
        ranks,
        UniqueId.from_buffer_copy(unique_id),
        rank,
        ctypes.byref(config),
    )
    assert result == IN_PROGRESS, result
    assert handle.value is not None
    return handle.value


def asynchronous_error(handle: int) -> int:
    """Return ncclCommGetAsyncError's answer."""
    error = ctypes.c_int()
    assert LIBRARY.ncclCommGetAsyncError(handle, ctypes.byref(error)) == 0
    return error.value


def last_error() -> str:
    """Return ncclGetLastError's text."""
    return LIBRARY.ncclGetLastError(None).decode()


def until(condition: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    """Wait for a condition; it must come in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.001)


def finish(stream: Any = cupy.cuda.Stream.null, timeout_s: float = 20) -> None:
    """Wait for a stream's work."""
    until(lambda: stream.done, "the stream's work", timeout_s)


def is_stuck(stream: Any = cupy.cuda.Stream.null, after_s: float = 0.5) -> bool:
    """Return whether a stream's work has not ended after a while."""
    time.sleep(after_s)
    return not stream.done


def refusal(call: Callable[..., Any], *arguments: Any) -> int:
    """Return the number of the NcclError that a call raises."""
    try:
        call(*arguments)
    except nccl.NcclError as error:
        return error.status
    raise AssertionError("no NcclError")


def main(programs: dict[str, Any]) -> None:
    """Run the programs that the command line names; end all ranks where one fails.

    The others say that they are done. They write to files of their own in the folder OUTPUT:
    mpirun loses output where it ends ranks.
    """
    file = os.open(f"{os.environ['OUTPUT']}/{RANK}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        for name in sys.argv[1:]:
            WORLD.Barrier()
            programs[name]()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.Abort(1)
        raise
    print(f"rank {RANK} is done", flush=True)
