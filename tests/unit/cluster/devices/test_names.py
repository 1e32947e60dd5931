"""Device strings: short and full forms, and whose they are."""

import pytest

from mpistrat.cluster.devices.names import canonical, named_devices
from mpistrat.errors import ArgumentTypeError, UsageError

FULL = "/job:worker/replica:0/task:2/device:CPU:1"


@pytest.mark.parametrize(
    "device",
    ["CPU:1", "cpu:1", "/cpu:1", "/device:CPU:1", "/task:2/device:CPU:1", FULL, FULL.lower()],
)
def test_forms(device):
    assert canonical(device, 2) == FULL


def test_gpu_and_large_numbers():
    assert canonical("gpu:12", 1000) == "/job:worker/replica:0/task:1000/device:GPU:12"


@pytest.mark.parametrize(
    "device",
    ["", "CPU", "CPU:", "CPU:x", "TPU:0", "CPU:-1", "CPU:0 ", "/job:worker", "CPU:0/CPU:1"],
)
def test_what_is_no_device(device):
    with pytest.raises(UsageError, match=r"is no device; expected e\.g\. 'CPU:0'"):
        canonical(device, 0)


def test_device_of_another_rank_is_refused():
    with pytest.raises(UsageError, match="belongs to rank 2, this is rank 0"):
        canonical(FULL, 0)


@pytest.mark.parametrize("device", [None, 0, b"CPU:0"])
def test_device_is_text(device):
    with pytest.raises(ArgumentTypeError, match="expected a str"):
        canonical(device, 0)


def test_named_devices():
    assert named_devices(["CPU:1", "CPU:0"], 2) == (FULL, FULL[:-1] + "0")
    assert named_devices((d for d in ["CPU:1"]), 2) == (FULL,)
    assert named_devices(["GPU:1"], 2) == (FULL.replace("CPU", "GPU"),)


@pytest.mark.parametrize(
    ("devices", "kind", "text"),
    [
        ("CPU:0", ArgumentTypeError, "is a str; expected a list of strings"),
        ([], UsageError, "names no device"),
        (["CPU:0", "/cpu:0"], UsageError, "names a device twice"),
        ([0], ArgumentTypeError, "expected a str"),
    ],
)
def test_bad_named_devices(devices, kind, text):
    with pytest.raises(kind, match=text):
        named_devices(devices, 0)
