"""Programs that use several pretended devices."""

import cupy
import numpy as np
from calls import launch, pointer, read_int, refused, start
from cupy.cuda import runtime


def bus_ids() -> list[str]:
    """Return the physical devices behind this process's numbers."""
    return [runtime.deviceGetPCIBusId(i)[5:7] for i in range(runtime.getDeviceCount())]


def three() -> None:
    """PRETEND_GPUS=3, all of them visible, each with memory and streams of its own."""
    assert bus_ids() == ["01", "02", "03"]
    assert runtime.deviceGetByPCIBusId("0000:02:00.0") == 1
    words = []
    for i in range(3):
        with cupy.cuda.Device(i):
            words.append(runtime.malloc(4))
            launch("set", pointer(words[-1]), np.int32(i))
            runtime.deviceSynchronize()  # copies wait for the current device only
    assert [read_int(word) for word in words] == [0, 1, 2]
    assert [runtime.memGetInfo()[1] - runtime.memGetInfo()[0]] == [4]
    for call in (runtime.setDevice, runtime.deviceGetPCIBusId):
        with refused("hipErrorInvalidDevice"):
            call(3)
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)
    with refused("hipErrorInvalidHandle"):  # an event of device 0 on a stream of device 1
        runtime.eventRecord(runtime.eventCreate(), stream.ptr)


def two_of_three() -> None:
    """HIP_VISIBLE_DEVICES=2,0."""
    assert bus_ids() == ["03", "01"]


def one_of_three() -> None:
    """HIP_VISIBLE_DEVICES=1,7,0: the list ends where a number names no device."""
    assert bus_ids() == ["02"]


def none() -> None:
    """HIP_VISIBLE_DEVICES is empty."""
    with refused("hipErrorNoDevice"):
        runtime.getDeviceCount()


def copies_between_devices() -> None:
    """They need no peer access; the numbers of the devices have to be right."""
    with cupy.cuda.Device(1):
        there = runtime.malloc(4)
        launch("set", pointer(there), np.int32(5))
        runtime.deviceSynchronize()
    here = runtime.malloc(4)
    runtime.memcpyPeer(here, 0, there, 1, 4)
    runtime.deviceSynchronize()
    assert read_int(here) == 5
    for devices in ((1, 0), (0, 0), (1, 1)):
        with refused("hipErrorInvalidValue"):
            runtime.memcpyPeer(here, devices[0], there, devices[1], 4)
    with cupy.cuda.Device(1):
        array = cupy.arange(10)
    assert (cupy.asnumpy(array) == np.arange(10)).all()


def arrays_of_two_devices() -> None:
    """CuPy lets a kernel use both where there is peer access."""
    with cupy.cuda.Device(1):
        there = cupy.arange(10)
        runtime.deviceSynchronize()
    here = cupy.arange(10)
    assert runtime.deviceCanAccessPeer(0, 1) == 1
    assert (cupy.asnumpy(here + there) == 2 * np.arange(10)).all()


def no_peers() -> None:
    """PRETEND_NO_PEERS=1."""
    assert runtime.deviceCanAccessPeer(0, 1) == 0
    with refused("hipErrorPeerAccessUnsupported"):
        runtime.deviceEnablePeerAccess(1)
    copies_between_devices()


if __name__ == "__main__":
    start(globals())
