"""Say what to install where there is no CuPy, more than one, or no driver that it can use."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from importlib import metadata
from typing import Any

__all__ = ["chosen_gpus", "several", "why_no_cupy", "why_no_gpu"]

_INSTALL = (
    "install mpistrat[cuda] (cupy-cuda13x) for NVIDIA's GPUs or mpistrat[rocm] (cupy-rocm-7-0) for"
    " AMD's, never both in one environment"
)
_BUILDS = re.compile(r"cupy(-cuda\w+|-rocm-[\w-]+)?", re.IGNORECASE)
_OLD_DRIVER, _NO_DEVICE = 35, 100  # of CUDA and of HIP
_CHOICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_CHOOSE_NONE = ("", "-1", "none", "void", "nodevfiles")  # the last is Slurm's


@lru_cache(maxsize=1)
def _builds() -> tuple[str, ...]:
    """Return the installed builds of CuPy, as ``name version``."""
    found = {(str(one.name), str(one.version)) for one in metadata.distributions() if one.name}
    return tuple(sorted(f"{name} {no}" for name, no in found if _BUILDS.fullmatch(name)))


def several() -> str | None:
    """Return what to do where several builds of CuPy are installed; None if they are not."""
    builds = _builds()
    if len(builds) < 2:
        return None
    return (
        f"{len(builds)} builds of CuPy are installed, which overwrite each other's files"
        f" ({', '.join(builds)}): uninstall all of them, then {_INSTALL}"
    )


def why_no_cupy(error: ImportError) -> str:
    """Return why CuPy cannot be imported, and what to install."""
    builds = _builds()
    if not builds:
        return f"arrays on GPUs need CuPy ({error}); {_INSTALL}, or use CPU devices"
    hint = several() or f"is {builds[0]} the one for this machine's GPUs? If not, {_INSTALL}"
    return f"CuPy cannot be imported ({_first_line(error)}); {hint}"


def chosen_gpus() -> str | None:
    """Return the setting that chooses this process's GPUs, with its value; None if none does."""
    for name in _CHOICES:
        value = os.environ.get(name, "")
        if value.strip().lower() not in _CHOOSE_NONE:
            return f"{name}={value}"
    return None


def why_no_gpu(error: Any) -> str:
    """Return why CuPy finds no GPU, and what to do; `error` is its CUDARuntimeError."""
    status = getattr(error, "status", None)
    if several():
        hint = str(several())
    elif status == _OLD_DRIVER:
        built = ", ".join(_builds()) or "this CuPy"
        hint = (
            f"there is no driver, or one that is too old for {built}: update it (CUDA 13 needs 580"
            " or later, ROCm 7 that of ROCm 7), or install a CuPy for the CUDA that nvidia-smi"
            " shows"
        )
    elif status == _NO_DEVICE:
        chosen = chosen_gpus() or "CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES"
        hint = f"look at nvidia-smi or rocm-smi, and at {chosen}"
    else:
        hint = "look at nvidia-smi or rocm-smi"
    return f"CuPy finds no GPU ({error}); {hint}; or use CPU devices"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =*-")]
    return lines[0] if lines else type(error).__name__
