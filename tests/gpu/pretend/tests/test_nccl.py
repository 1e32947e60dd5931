"""The pretended NCCL, through the real CuPy, in several processes.

Each test is a program of ranks in nccl_programs/, which checks itself.
"""

import re
from pathlib import Path

import pytest

from gpu.pretend.tests.nccl_job import run, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@takes_long()
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_values_of_all_dtypes(ranks):
    run("collectives.all_reduce,reduce_and_broadcast,gather_and_scatter", ranks)


@takes_long()
def test_collectives():
    run("collectives.rounding,ordered_on_streams,two_streams,empty", 3)


@takes_long()
@pytest.mark.parametrize("ranks", [1, 3])
def test_groups(ranks):
    run("messages.ring,all_to_all,nested_groups,streams_of_a_group", ranks)


@takes_long()
def test_messages():
    run("messages.in_order,without_group", 3)


@takes_long()
def test_membership():
    run("membership.queries,split,several,lonely,end,one_id_once,same_rank", 3)


@takes_long()
def test_without_blocking():
    run("membership.without_blocking", 3)


@takes_long()
def test_ranks_share_a_device():
    run("membership.same_device", 2, PRETEND_SEPARATE="0")
    shared = {"PRETEND_SEPARATE": "0", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    run("membership.queries", 2, **shared)


def test_one_process_drives_all_devices():
    run("membership.all_devices", 1, PRETEND_GPUS="3")


@takes_long()
def test_other_devices():
    """The second device of each process, memory and streams as well."""
    run("messages.ring", 2, PRETEND_GPUS="2", ON_DEVICE="1")


def test_wrong_memory():
    run("mistakes.wrong_memory", 2)


@takes_long()
def test_mistakes():
    run("mistakes.wrong_numbers,left_early", 2)


@takes_long()
@pytest.mark.parametrize("ranks", [2, 3])
def test_different_calls_are_errors_on_all_ranks(ranks):
    output = run("mistakes.different", ranks)
    found = re.findall(r"rank (\d) of \d: (the ranks|messages|deadlock)", output)
    assert {rank for rank, _ in found} == {str(rank) for rank in range(ranks)}
    assert {what for _, what in found} == {"the ranks", "messages", "deadlock"}


@takes_long()
def test_different_calls_hang_as_on_hardware():
    output = run("mistakes.different_hangs", 2, PRETEND_NCCL_HANG="1")
    assert "would hang" not in output


@takes_long()
def test_a_peer_aborts():
    run("mistakes.peer_aborts", 3)


@takes_long()
@pytest.mark.parametrize("hangs", [{}, {"PRETEND_NCCL_HANG": "1"}], ids=["told", "hangs"])
def test_a_peer_dies(hangs):
    before = _shared_memory()
    run("mistakes.peer_dies", 2, **hangs)
    assert _shared_memory() <= before


def _shared_memory() -> set[str]:
    """Names in /dev/shm that no MPI has given."""
    return {path.name for path in Path("/dev/shm").glob("*pretend*")}
