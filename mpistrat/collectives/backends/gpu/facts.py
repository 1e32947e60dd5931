"""Tell the other ranks which GPU this one uses, and what it can do with it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.cluster.topology import host_name
from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.errors import CommunicationError
from mpistrat.system.processes.process_token import process_token

__all__ = ["Facts", "exchange", "exchange_bytes", "facts"]

_FACT_BYTES, _MODEL_CHARACTERS = 768, 60


@dataclass(frozen=True)
class Facts:
    """One rank's GPU.

    Attributes
    ----------
    host, process
        Where the rank runs; see `mpistrat.system.processes.process_token`.
    bus
        The PCI address of the GPU, by which ranks find that they share it. CuPy on AMD GPUs
        knows no UUIDs.
    model
        The GPU's name, as its maker calls it.
    is_amd
        Whether it is reached through HIP.
    nccl
        Version of the NCCL or RCCL that CuPy has here; 0 if it has none.
    carrier, one_shot
        What MPISTRAT_GPU_CARRIER and MPISTRAT_GPU_ONE_SHOT ask for.
    has_flags
        Whether a kernel on this GPU sees what those on others write to its memory meanwhile.
        NVIDIA's do. AMD's need memory that is not cached, which CuPy cannot allocate: there, it
        is so only where MPISTRAT_GPU_ONE_SHOT=on says it.
    """

    host: str
    process: str
    bus: str
    model: str
    is_amd: bool
    nccl: int
    carrier: str
    one_shot: str
    has_flags: bool


def facts(device: int) -> Facts:
    """Return this rank's facts about a GPU. **Local.**"""
    import cupy

    runtime = cupy.cuda.runtime
    return Facts(
        host_name(),
        process_token(),
        runtime.deviceGetPCIBusId(device),
        _model(runtime.getDeviceProperties(device)["name"]),
        bool(runtime.is_hip),
        _nccl_version(),
        config.gpu_carrier(),
        config.gpu_one_shot(),
        not runtime.is_hip or config.gpu_one_shot() == "on",
    )


def _model(name: bytes | str) -> str:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    return text[:_MODEL_CHARACTERS]


def _nccl_version() -> int:
    try:
        from cupy.cuda import nccl

        return int(nccl.get_version())
    except (ImportError, AttributeError):
        return 0


def exchange(host: Backend, mine: Facts) -> Steps:
    """Return the facts of all ranks, by rank. **Collective.**"""
    rows = yield from exchange_bytes(host, json.dumps(asdict(mine)).encode(), _FACT_BYTES)
    return [Facts(**json.loads(row)) for row in rows]


def exchange_bytes(host: Backend, mine: bytes, nbytes: int) -> Steps:
    """Return what each rank brings, of at most `nbytes`, by rank. **Collective.**"""
    if len(mine) > nbytes:
        raise CommunicationError(f"{len(mine)} bytes to exchange; expected at most {nbytes}")
    row: Any = np.zeros(nbytes, np.uint8)
    row[: len(mine)] = np.frombuffer(mine, np.uint8)
    rows = np.empty(nbytes * host.size, np.uint8)
    yield from host.allgather(row, rows, [nbytes] * host.size)
    return [one.tobytes().rstrip(b"\0") for one in rows.reshape(host.size, nbytes)]
