"""Several pretended GPUs in one process (runtime_programs/devices.py)."""

import pytest

from gpu.pretend.tests import runtime_job

pytestmark = pytest.mark.skipif(
    runtime_job.why_not() is not None, reason=str(runtime_job.why_not())
)


def test_devices():
    runtime_job.run("devices.three", PRETEND_GPUS="3", HIP_VISIBLE_DEVICES="0,1,2")


@pytest.mark.parametrize(
    ("function", "visible"), [("two_of_three", "2,0"), ("one_of_three", "1,7,0"), ("none", "")]
)
def test_visible_devices(function, visible):
    runtime_job.run(f"devices.{function}", PRETEND_GPUS="3", HIP_VISIBLE_DEVICES=visible)


def test_peers():
    runtime_job.run("devices.copies_between_devices,arrays_of_two_devices", PRETEND_GPUS="2")
    runtime_job.run("devices.no_peers", PRETEND_GPUS="2", PRETEND_NO_PEERS="1")
