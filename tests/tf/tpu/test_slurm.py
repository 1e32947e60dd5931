"""Which TPU a rank has that srun started: all ranks have the same arguments and environment."""

import os

import pytest

tf = pytest.importorskip("tensorflow")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import MpistratError, UsageError  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow.tpu.which_tpu import of_rank  # noqa: E402

four_cpus()

TWO = pytest.mark.mpi(ranks=2, timeout_s=30)
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.fixture
def rank_3(monkeypatch):
    """Give the process the environment of a task of srun."""
    for name in ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for item in {**SLURM, "SLURM_PROCID": "3"}.items():
        monkeypatch.setenv(*item)
    return int(os.environ["SLURM_PROCID"])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("slice-{rank}", "slice-3"),
        ("grpc://10.0.0.{rank}:8470", "grpc://10.0.0.3:8470"),
        ("local", "local"),
        (lambda rank: f"slice-{rank:02}", "slice-03"),
        (["a", "b", "c", "pod-{rank}"], "pod-3"),
        (lambda _: ["a", "b", "c", "pod-{rank}"], "pod-3"),
        (None, None),
        (["a", "b", "c", None], None),
    ],
)
def test_names_by_rank(rank_3, given, named):
    assert of_rank(given, rank_3, 4) == named


def test_one_environment_of_all_tasks_names_the_tpu_of_each(rank_3, monkeypatch):
    monkeypatch.setenv("TPU_NAME", "grpc://10.0.0.{rank}:8470,grpc://10.0.1.{rank}:8470")
    named = of_rank(None, rank_3, 4)
    assert of_rank(["a", "b", "c", None], rank_3, 4) == named
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(named)
    hosts = ["10.0.0.3:8470", "10.0.1.3:8470"]
    assert resolver.cluster_spec().as_dict() == {"worker": hosts}
    monkeypatch.setenv("TPU_NAME", "slice")
    assert of_rank(None, rank_3, 4) is None  # TensorFlow looks there, among others


@pytest.mark.parametrize(
    "name", ["slice-{host}", "slice-{", "slice-{}", "{rank.node}", "{rank[0]}"]
)
def test_other_braces(rank_3, name):
    with pytest.raises(UsageError, match=r"expected no braces but \{rank\}, such as"):
        of_rank(name, rank_3, 4)
    with pytest.raises(UsageError, match=r"expected no braces but"):
        of_rank(["a", "b", "c", name], rank_3, 4)


class _Named(PretendResolver):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank


@TWO
@pytest.mark.parametrize("driver", [None, 1])
def test_tasks_of_srun_make_resolvers_of_their_own(driver):
    from mpi4py import MPI

    rank, made = MPI.COMM_WORLD.rank, []
    task = {**SLURM, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(rank)}

    def resolver(of):
        made.append(of)
        return _Named(of)

    with pytest.MonkeyPatch.context() as patch, initialized():
        for item in task.items():
            patch.setenv(*item)
        with mpistrat.TPUStrategy(resolver, driver=driver) as s:
            assert s.num_replicas_in_sync == (4 if driver is None else 2)
            if s.is_driver:
                assert s.cluster_resolver.rank == rank
            assert made == ([rank] if s.is_driver else [])


@TWO
def test_an_error_of_one_task_reaches_all():
    def resolver(rank):
        return [PretendResolver(), 3][rank]

    with initialized(), pytest.raises(MpistratError, match="expected a TPUClusterResolver"):
        mpistrat.TPUStrategy(resolver)
