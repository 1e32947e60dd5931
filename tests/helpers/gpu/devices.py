"""GPUs for tests: how many there are, and which one a rank uses."""

from __future__ import annotations

from typing import Any

import pytest

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError

__all__ = ["device_of_rank", "needs_gpus"]


def needs_gpus(count: int) -> Any:
    """Skip the test unless this process can see so many GPUs; return CuPy."""
    try:
        gpu_devices.require([f"GPU:{count - 1}"])
    except BackendUnavailableError as error:
        pytest.skip(f"needs {count} GPUs: {error}")
    import cupy

    return cupy


def device_of_rank(rank: int) -> int:
    """Return the index of a GPU that no other rank of the job uses."""
    return rank
