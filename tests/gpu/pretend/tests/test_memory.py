"""Memory of the pretended GPU, through the real CuPy (runtime_programs/memory.py)."""

import signal

import pytest

from gpu.pretend.tests.runtime_job import outcome, run, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def test_contents():
    run("memory.fresh_memory_is_rubbish,fresh_memory_of_the_host_is_rubbish,freed_memory_changes")


def test_copies_are_checked():
    run("memory.copies_stay_in_allocations,directions_are_checked")


def test_pinned_and_managed_memory():
    functions = "pinned_memory_is_read_late,kernels_use_pinned_memory,kinds_of_pointers"
    run(f"memory.{functions}")


def test_memory_that_is_pinned_where_it_is():
    run("memory.registered_memory_is_used_late")


@takes_long()
def test_variables_of_modules():
    run("memory.variables_of_modules")


def test_memory_ends():
    run("memory.memory_ends", PRETEND_MIB="16")


def test_the_pool_gives_back():
    run("memory.the_pool_gives_back")


@pytest.mark.parametrize("access", ["reads", "writes"])
def test_the_host_cannot_reach_memory_of_a_device(access):
    code, output = outcome(f"memory.the_host_{access}")
    assert "before" in output
    assert "is done" not in output
    assert code == -signal.SIGSEGV, output
