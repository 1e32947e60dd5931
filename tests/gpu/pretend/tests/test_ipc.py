"""Memory and events that processes on pretended GPUs share (runtime_programs/sharing.py)."""

import select

import pytest

from gpu.pretend.tests.runtime_job import run, started, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def test_memory():
    functions = "memory_of_another_process,short_allocations_share_a_handle"
    # On a device that the processes share peers do not matter.
    run(f"sharing.{functions}", PRETEND_NO_PEERS="1")


@takes_long()
def test_memory_of_another_gpu():
    run("sharing.memory_of_another_process", PRETEND_SEPARATE="1")
    without = {"PRETEND_SEPARATE": "1", "PRETEND_NO_PEERS": "1"}
    run("sharing.no_access_to_another_gpu", **without)


@takes_long()
def test_events():
    run("sharing.events_of_another_process")
    run("sharing.records_end_in_any_order")


@takes_long()
def test_kernels_of_two_processes():
    run("sharing.kernels_overlap")
    run("sharing.kernels_never_overlap", PRETEND_EXCLUSIVE="1")
    separate = {"PRETEND_EXCLUSIVE": "1", "PRETEND_SEPARATE": "1"}
    run("sharing.kernels_overlap", **separate)


@takes_long()
def test_which_kernels_are_kept_apart(tmp_path):
    """Those of one process are not, nor those of another job, unless both name a file."""
    run("sharing.kernels_of_one_process_overlap", PRETEND_EXCLUSIVE="1")
    run("sharing.kernels_never_overlap", PRETEND_EXCLUSIVE=str(tmp_path / "one"))
    holds = started("faults.waits_to_be_killed", PRETEND_EXCLUSIVE="1")
    with holds, holds.stdout:
        try:
            ready, _, _ = select.select([holds.stdout], [], [], 60)
            assert ready, "its kernel does not start"
            run("streams.arguments_are_read_at_the_call", PRETEND_EXCLUSIVE="1")
            assert holds.poll() is None
        finally:
            holds.kill()


@takes_long()
def test_physical_devices():
    run("sharing.one_gpu_for_all")
    run("sharing.a_gpu_for_each", PRETEND_SEPARATE="1")
