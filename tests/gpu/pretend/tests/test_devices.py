"""Several pretended GPUs in one process (runtime_programs/devices.py)."""

import pytest

from gpu.pretend.tests.runtime_job import run, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def test_devices():
    run("devices.three", PRETEND_GPUS="3", HIP_VISIBLE_DEVICES="0,1,2")


@pytest.mark.parametrize(
    ("function", "visible"), [("two_of_three", "2,0"), ("one_of_three", "1,7,0"), ("none", "")]
)
def test_visible_devices(function, visible):
    run(f"devices.{function}", PRETEND_GPUS="3", HIP_VISIBLE_DEVICES=visible)


@takes_long()
def test_peers():
    run("devices.copies_between_devices,arrays_of_two_devices", PRETEND_GPUS="2")
    run("devices.no_peers", PRETEND_GPUS="2", PRETEND_NO_PEERS="1")
