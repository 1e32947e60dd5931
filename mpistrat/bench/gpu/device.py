"""Tell which GPU is measured, by which driver and libraries, and whether times mean anything."""

from __future__ import annotations

import subprocess
from typing import Any

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError

__all__ = ["gpu_facts", "has_bars", "is_pretended", "why_no_gpu"]

_PRETENDED = "pretended GPU"  # how the devices of tests/gpu/pretend call themselves


def why_no_gpu(wanted: int = 1) -> str | None:
    """Return why this rank cannot use so many GPUs, and what to do; None if it can. **Local.**"""
    try:
        gpu_devices.require(["GPU:0"])
    except BackendUnavailableError as error:
        return str(error)
    seen = gpu_devices.count()
    if wanted > seen:
        return (
            f"--gpus {wanted}: a rank can see {seen} GPUs; expected 1 to {seen}, or leave it out"
        )
    return None


def gpu_facts() -> dict[str, Any]:
    """Return name, driver and library versions of the current GPU, for the JSON lines."""
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(runtime.getDevice())
    return {
        "gpu": properties["name"].decode(),
        "gpu_memory_bytes": int(properties["totalGlobalMem"]),
        "gpu_processors": int(properties["multiProcessorCount"]),
        "gpu_l2_bytes": int(properties["l2CacheSize"]),
        "gpu_driver": _driver(),
        "platform": "hip" if runtime.is_hip else "cuda",
        "driver_api": int(runtime.driverGetVersion()),
        "runtime_api": int(runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
        "nccl": _nccl_version(),
    }


def is_pretended(facts: dict[str, Any]) -> bool:
    """Tell whether the GPU is one of tests/gpu/pretend, whose times say nothing about any GPU."""
    return str(facts["gpu"]).startswith(_PRETENDED)


def has_bars(facts: dict[str, Any]) -> bool:
    """Tell whether figures are held against the bars: on real GPUs of NVIDIA alone."""
    return facts["platform"] == "cuda" and not is_pretended(facts)


def _driver() -> str | None:
    """Return the version of NVIDIA's driver; None where nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.partition("\n")[0].strip() or None if asked.returncode == 0 else None


def _nccl_version() -> int | None:
    try:
        from cupy.cuda import nccl

        return int(nccl.get_version())
    except (ImportError, AttributeError):  # a build of CuPy without it
        return None
