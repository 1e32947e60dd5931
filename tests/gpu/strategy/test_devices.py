"""Replicas of strategies are on the GPUs bound to their rank; other devices are refused."""

import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from mpistrat.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    ClusterError,
    MpistratError,
    UsageError,
)
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

STRATEGIES = [
    mpistrat.MirroredStrategy,
    lambda devices=None: mpistrat.MultiWorkerMirroredStrategy(devices=devices),
    mpistrat.CentralStorageStrategy,
]


@pytest.mark.mpi(ranks=[1, 2, 3], timeout_s=60)
@pytest.mark.parametrize("make", STRATEGIES)
def test_the_gpus_of_a_node_are_dealt_out_to_its_ranks(make):
    from mpi4py import MPI

    cupy = needs_gpus(4)
    rank, each = MPI.COMM_WORLD.rank, 4 // MPI.COMM_WORLD.size
    with make() as strategy:
        names = [name.rsplit("/", 1)[-1] for name in strategy.extended.worker_devices]
        assert names == [f"device:GPU:{each * rank + index}" for index in range(each)]
        assert strategy.num_replicas_in_sync == each * MPI.COMM_WORLD.size
        assert cupy.cuda.Device().id == each * rank


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("make", STRATEGIES)
@pytest.mark.parametrize(
    ("devices", "kind", "text"),
    [
        (["GPU:99"], BackendUnavailableError, r"GPU:99.*can see \d+ GPUs"),
        (["GPU:0", "GPU:0"], UsageError, "names a device twice"),
        (["TPU:0"], UsageError, "is no device"),
        ("GPU:0", ArgumentTypeError, "expected a list of strings"),
    ],
)
def test_devices_that_are_not_there_are_an_error_on_all_ranks(make, devices, kind, text):
    from mpi4py import MPI

    needs_gpus(2)
    wrong = MPI.COMM_WORLD.rank == 1
    expected = pytest.raises(kind, match=text) if wrong else pytest.raises(MpistratError)
    with expected:
        make(devices if wrong else ["GPU:0"])


_PROGRAM = """
import os
from mpistrat.testing.launching.rank import rank_from_environment
rank = rank_from_environment()
visible = {visible}[rank]
os.environ["MPISTRAT_GPU_ORDER"] = {order!r}
if visible is not None:
    os.environ["HIP_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"] = visible
import cupy
import mpistrat
from mpistrat.errors import MpistratError
try:
    with mpistrat.MirroredStrategy() as strategy:
        names = [name[-5:] for name in strategy.extended.worker_devices]
        total = strategy.reduce("SUM", strategy.run(lambda: cupy.ones(3)))
        print(names, total.tolist(), [cupy.cuda.runtime.deviceGetPCIBusId(0)])
except MpistratError as error:
    print(type(error).__name__, error)
"""


def outputs(*visible, order=""):
    needs_gpus(4)
    job = run_job(["-c", _PROGRAM.format(visible=visible, order=order)], len(visible), 120)
    assert job.returncode == 0, job.output
    return [one.stdout for one in job.ranks]


@takes_long()
def test_gpus_that_the_launcher_has_dealt_out():
    found = outputs("2", "0")
    assert all("['GPU:0'] [2.0, 2.0, 2.0]" in one for one in found), found
    assert found[0] != found[1]  # not the same GPU


@takes_long()
@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("3,0", ["['GPU:3']", "['GPU:0']"]),
        ("3,2,1,0", ["['GPU:3', 'GPU:2']", "['GPU:1', 'GPU:0']"]),
    ],
)
def test_an_order_of_gpus_that_all_ranks_see(order, names):
    found = outputs(None, None, order=order)
    for one, wanted in zip(found, names, strict=True):
        assert one.startswith(wanted), found


@takes_long()
def test_an_order_that_does_not_fit_is_an_error_on_all_ranks():
    for one in outputs(None, None, order="0,1,2"):
        assert one.startswith("ClusterError MPISTRAT_GPU_ORDER=0,1,2, but node"), one


@takes_long()
def test_an_order_of_gpus_that_the_launcher_has_dealt_out_is_not_used():
    found = outputs("2", "0", order="1,0")
    assert all("['GPU:0'] [2.0, 2.0, 2.0]" in one for one in found), found


@takes_long()
def test_ranks_that_share_a_gpu():
    found = outputs("1", "1", "1")
    assert all("['GPU:0'] [3.0, 3.0, 3.0]" in one for one in found), found


@takes_long()
@pytest.mark.parametrize("visible", [("0", None), ("0", ""), ("0,1", "1,2")])
def test_a_half_set_environment_is_an_error_on_all_ranks(visible):
    for one in outputs(*visible):
        assert one.startswith(ClusterError.__name__), one
        assert "start all ranks of a node alike" in one


@pytest.mark.deadline(90)
@pytest.mark.parametrize(
    ("visible", "is_said"), [("97", True), ("", False), ("NoDevFiles", False)]
)
def test_a_choice_of_gpus_that_are_not_there_is_said(visible, is_said):
    needs_gpus(1)
    env = {"CUDA_VISIBLE_DEVICES": visible, "HIP_VISIBLE_DEVICES": visible}
    job = run_job(["-c", "import mpistrat; mpistrat.MirroredStrategy()"], 1, 80, env=env)
    assert job.returncode == 0, job.output
    warning = "replicas run on CPUs: CuPy finds no GPU"
    assert (warning in job.output) == is_said, job.output
    assert (f"CUDA_VISIBLE_DEVICES={visible}" in job.output) == is_said, job.output


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_value_from_the_host_is_taken_there():
    needs_gpus(2)
    from mpi4py import MPI

    with mpistrat.MirroredStrategy([f"GPU:{MPI.COMM_WORLD.rank}"]) as strategy:
        # One rank brings an array of its GPU, the other one a number and an array of the host.
        mine = strategy.run(lambda: np.ones(2)) if MPI.COMM_WORLD.rank else None
        if mine is None:
            import cupy

            mine = strategy.run(lambda: cupy.ones(2))
        assert strategy.reduce("SUM", mine).tolist() == [2.0, 2.0]
