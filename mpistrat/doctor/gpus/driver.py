"""List the GPUs that this process can see, by the driver's own library (CUDA or HIP)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.not_here import NotHere

__all__ = ["Gpu", "Vendor", "driver_library", "installed", "usable", "visible"]

_NO_DEVICE = 100  # of CUDA and of HIP
_UUID_BYTES = 16
_TEXT_BYTES = 64


@dataclass(frozen=True)
class Vendor:
    """The names of a driver's library and of its functions; all take the same arguments.

    `init` is "" where the library starts by itself.
    """

    name: str
    libraries: Sequence[str]
    init: str
    count: str
    bus: str
    uuid: str


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes
    ----------
    bus
        Its PCI address, as in /sys/bus/pci/devices: ``"0000:c1:00.0"``.
    uuid
        Hexadecimal digits; parts of one GPU (MIG) share a bus, and differ in this.
    cpus
        The CPUs near it, as Linux lists them, or "".
    """

    bus: str
    uuid: str = ""
    cpus: str = ""


VENDORS = (
    Vendor(
        "CUDA",
        ("libcuda.so.1",),
        "cuInit",
        "cuDeviceGetCount",
        "cuDeviceGetPCIBusId",
        "cuDeviceGetUuid_v2",
    ),
    Vendor(
        "HIP",
        ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"),
        "",
        "hipGetDeviceCount",
        "hipDeviceGetPCIBusId",
        "hipDeviceGetUuid",
    ),
)


def usable() -> tuple[Gpu, ...]:
    """Return the GPUs that this process can see: one at least.

    Raises
    ------
    NotHere
        There are none, or their driver fails, which the check of the driver reports.
    """
    try:
        gpus = visible()
    except OSError:
        raise NotHere("the driver of GPUs fails") from None
    if not gpus:
        raise NotHere("no GPU")
    return gpus


@functools.cache
def visible() -> tuple[Gpu, ...]:
    """Return the GPUs that this process can see, in the order of their indices.

    Raises
    ------
    NotHere
        There is no driver of GPUs, or it finds none.
    OSError
        The driver is there, and cannot be used.
    """
    vendor, library = driver_library()
    status = getattr(library, vendor.init)(0) if vendor.init else 0
    count = ctypes.c_int()
    if status == 0:
        status = getattr(library, vendor.count)(ctypes.byref(count))
    if status == _NO_DEVICE:
        return ()
    if status:
        raise OSError(f"{vendor.name}'s driver of GPUs fails with code {status}")
    return tuple(_gpu(vendor, library, index) for index in range(count.value))


def driver_library() -> tuple[Vendor, ctypes.CDLL]:
    """Return the driver's library.

    Raises
    ------
    NotHere
        There is none.
    """
    for vendor in VENDORS:
        for name in vendor.libraries:
            if (library := _loaded(name)) is not None:
                return vendor, library
    raise NotHere("no GPU")


def _loaded(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def installed() -> int:
    """Return the number of GPUs of this machine, visible or not, as far as Linux tells."""
    nvidia = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
    return nvidia + sum(_text(file) not in ("", "0") for file in nodes)


def _gpu(vendor: Vendor, library: ctypes.CDLL, index: int) -> Gpu:
    text, uuid = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.create_string_buffer(_UUID_BYTES)
    status = getattr(library, vendor.bus)(text, _TEXT_BYTES, index)
    if status:
        raise OSError(f"{vendor.bus} of GPU {index} failed with code {status}")
    if getattr(library, vendor.uuid, None) is None or getattr(library, vendor.uuid)(uuid, index):
        uuid.raw = bytes(_UUID_BYTES)
    bus = text.value.decode().lower()
    cpus = _text(Path("/sys/bus/pci/devices") / bus / "local_cpulist")
    return Gpu(bus, uuid.raw.hex(), cpus)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
