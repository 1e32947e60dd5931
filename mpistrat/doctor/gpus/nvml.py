"""Ask NVML, the library of nvidia-smi, about the health of the GPUs that are visible."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.not_here import NotHere

__all__ = ["Health", "health"]

_UNCORRECTED, _VOLATILE = 1, 0
_DOUBLE_BIT = 1
_THROTTLES = {
    0x04: "power cap",
    0x08: "slowdown by hardware",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake by hardware",
}


@dataclass(frozen=True)
class Health:
    """The state of a GPU: errors of its memory since the driver was loaded, and its clocks.

    A number is None where the GPU does not count that.
    """

    bus: str
    uncorrected: int | None = None
    retired_pages: int | None = None
    throttled: tuple[str, ...] = ()


def health(buses: tuple[str, ...]) -> tuple[int, tuple[Health, ...]]:
    """Return the status of NVML's start, and the health of the GPUs at these PCI addresses.

    Raises
    ------
    NotHere
        There is no NVML and no driver of NVIDIA.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        if Path("/proc/driver/nvidia/version").exists():
            return -1, ()
        raise NotHere("no GPU of NVIDIA") from None
    status = int(library.nvmlInit_v2())
    if status:
        return status, ()
    try:
        return 0, tuple(_health(library, bus) for bus in buses)
    finally:
        library.nvmlShutdown()


def _health(library: ctypes.CDLL, bus: str) -> Health:
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)):
        return Health(bus)
    errors, pages, reasons = ctypes.c_ulonglong(), ctypes.c_uint(0), ctypes.c_ulonglong()
    has_errors = not library.nvmlDeviceGetTotalEccErrors(
        handle, _UNCORRECTED, _VOLATILE, ctypes.byref(errors)
    )
    # With room for none it answers "too small" (7) where there are some, and says how many.
    answer = library.nvmlDeviceGetRetiredPages(handle, _DOUBLE_BIT, ctypes.byref(pages), None)
    has_reasons = not library.nvmlDeviceGetCurrentClocksThrottleReasons(
        handle, ctypes.byref(reasons)
    )
    throttled = [name for bit, name in _THROTTLES.items() if has_reasons and reasons.value & bit]
    return Health(
        bus,
        errors.value if has_errors else None,
        pages.value if answer in (0, 7) else None,
        tuple(throttled),
    )
