"""Give each rank a GPU, and open a communicator for each carrier of mpistrat, and NCCL's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from mpistrat import Communicator, config
from mpistrat.cluster import mpi
from mpistrat.errors import BackendError, MismatchError

__all__ = ["GpuSession", "open_gpu_session", "own_gpu"]

_VARIABLE = "MPISTRAT_GPU_CARRIER"


@dataclass(frozen=True)
class GpuSession:
    """What all rows share.

    Attributes
    ----------
    communicator
        Through which the ranks meet; never measured.
    carriers
        A communicator for each carrier that works here, and for ``"auto"``, the first.
    world
        A duplicate of COMM_WORLD; None for a rank alone.
    nccl
        CuPy's own communicator, where each rank has a GPU; else None.
    is_shared
        Whether all ranks use one GPU.
    """

    communicator: Communicator
    carriers: dict[str, Communicator]
    world: Any
    nccl: Any
    is_shared: bool


def own_gpu(communicator: Communicator, gpus: int | None) -> int:
    """Return this rank's GPU: by its number on the node, in turn among the first `gpus`."""
    import cupy

    return communicator.topology.local_rank % (gpus or int(cupy.cuda.runtime.getDeviceCount()))


@contextmanager
def open_gpu_session(
    communicator: Communicator, say: Callable[[str], None]
) -> Iterator[GpuSession]:
    """Open all carriers with this rank's current GPU; `say` which cannot be used. **Collective.**

    Raises
    ------
    BackendUnavailableError
        Not even staging over the host works.
    """
    buses = communicator.allgather_object(_bus())
    with ExitStack() as opened:
        carriers = {}
        for name in ("auto", *config.GPU_CARRIERS):
            one, reason = _open(name, communicator)
            if one is None:
                say(f"carrier {name}: left out, {reason}")
            else:
                carriers[name] = one
        world = mpi.world()
        session = GpuSession(
            communicator,
            carriers,
            None if world is None or world.size == 1 else world.Dup(),
            _open_nccl(communicator, say) if len(set(buses)) == len(buses) > 1 else None,
            len(set(buses)) == 1,
        )
        yield session  # after an error the ranks may be apart: then nothing is closed together
        communicator.barrier()
        if session.world is not None:
            opened.callback(session.world.Free)
        for one in carriers.values():
            opened.callback(one.close)


def _bus() -> tuple[str, str]:
    import cupy

    from mpistrat.cluster.topology import host_name

    runtime = cupy.cuda.runtime
    return host_name(), runtime.deviceGetPCIBusId(runtime.getDevice())


def _open(name: str, communicator: Communicator) -> tuple[Communicator | None, str]:
    """Return a communicator by a carrier, or why there is none: the same on all ranks."""
    import cupy

    opened, reason = None, None
    kept = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    try:
        opened = Communicator()
        opened.allreduce(cupy.zeros(1, "float32"))  # the carrier is opened by the first call
    except (BackendError, MismatchError) as error:
        reason = str(error)
    finally:
        if kept is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = kept
    reasons = [why for why in communicator.allgather_object(reason) if why]
    if not reasons:
        return opened, ""
    if opened is not None:
        opened.close()
    return None, reasons[0]


def _open_nccl(communicator: Communicator, say: Callable[[str], None]) -> Any:
    """Return NCCL's communicator as a user of CuPy makes it; None if CuPy is without NCCL."""
    try:
        from cupy.cuda import nccl

        has_nccl = bool(nccl.available)
    except ImportError:
        has_nccl = False
    if not all(communicator.allgather_object(has_nccl)):
        say("nccl by cupy: left out, CuPy is without NCCL on some rank")
        return None
    name = communicator.bcast_object(nccl.get_unique_id() if communicator.rank == 0 else None)
    return nccl.NcclCommunicator(communicator.size, name, communicator.rank)
