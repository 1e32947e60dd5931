"""Each strategy's template trains on a real Slurm, submitted by ``mpistrat slurm submit``."""

import re
import sys

import pytest

from helpers.slurm.submitting import job_of, submit
from mpistrat.bench.results.file import read_points
from mpistrat.testing.sets import takes_long

DEMO = ("-m", "mpistrat.demo", "--epochs", "1")
TOTAL = """
import mpistrat
strategy = mpistrat.CentralStorageStrategy()
with strategy.scope():
    total = mpistrat.Variable(0.0, aggregation=mpistrat.VariableAggregation.SUM)
def step():
    total.assign_add(mpistrat.get_replica_context().replica_id_in_sync_group + 1.0)
strategy.run(step)
if strategy.communicator.rank == 0:
    print(f"sum {float(total.numpy())} of {strategy.num_replicas_in_sync} replicas")
"""

pytestmark = [pytest.mark.deadline(150), takes_long()]


@pytest.mark.parametrize(
    ("strategy", "nodes", "per_node"),
    [("one_device", 1, 1), ("mirrored", 1, 2), ("mirrored", 2, 1), ("multi_worker", 4, 1)],
)
def test_training(slurm, tmp_path, strategy, nodes, per_node):
    options = ("--strategy", strategy, "--nodes", str(nodes), "--tasks-per-node", str(per_node))
    done = submit(slurm, tmp_path, *options, program=DEMO)
    assert done.returncode == 0, done.stderr
    replicas = nodes * per_node
    if replicas > 1:  # on one, the demo names no ranks
        assert f"replicas: {replicas}, ranks: {replicas}," in done.stdout
        assert f"all replicas hold the same bits: {replicas} x sha256" in done.stdout
    assert re.search(r"test accuracy 9\d\.\d\d% after", done.stdout), done.stdout


def test_central_storage(slurm, tmp_path):
    options = ("--strategy", "central_storage", "--tasks-per-node", "2")
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", TOTAL))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3.0 of 2 replicas") == 1


def test_parameter_servers(slurm, tmp_path):
    options = ("--strategy", "parameter_server", "--ps", "2", "--nodes", "2", "--ranks", "5")
    done = submit(slurm, tmp_path, *options, program=("-m", "mpistrat.demo.words", "40"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"loss \d\.\d+ at first, \d\.\d+ in the end", done.stdout), done.stdout


def test_the_number_of_parameter_servers_reaches_the_program(slurm, tmp_path):
    show = 'import os; print(f\'{os.environ["NUM_PS"]} of {os.environ["SLURM_NTASKS"]}\')'
    options = ("--strategy", "parameter_server", "--ps", "1", "--tasks-per-node", "3")
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", show))
    assert done.stdout.count("1 of 3\n") == 3, done.stderr


def test_an_array(slurm, tmp_path):
    show = "import os; print('index', os.environ['SLURM_ARRAY_TASK_ID'])"
    options = ("--strategy", "array", "--array", "1-5:2%2", "--name", "runs")
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", show))
    assert done.returncode == 0, done.stderr
    job = job_of(done)
    outputs = {file.name: file.read_text() for file in tmp_path.glob("runs-*.out")}
    assert outputs.keys() == {f"runs-{job}_{index}.out" for index in (1, 3, 5)}
    for index in (1, 3, 5):
        assert f"index {index}\n" in outputs[f"runs-{job}_{index}.out"]
    assert done.stdout == ""  # of several jobs none is shown
    assert f"job {job}: COMPLETED; output in {tmp_path} (3 files)" in done.stderr


def test_a_failing_job_of_an_array_is_named(slurm, tmp_path):
    fail = "import os; raise SystemExit(int(os.environ['SLURM_ARRAY_TASK_ID']))"
    options = ("--strategy", "array", "--array", "0,4")
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", fail))
    assert done.returncode == 4
    assert f"job {job_of(done)}_4: FAILED (NonZeroExitCode), exit code 4" in done.stderr
    assert "_0: " not in done.stderr


def test_the_scaling_suite(slurm, tmp_path):
    bench = ("mpistrat", "bench", "collectives", "--bytes", "8", "--rounds", "5")
    options = ("--strategy", "scaling", "--nodes", "2", "--tasks-per-node", "2")
    done = submit(slurm, tmp_path, *options, program=(*bench, "--seconds", "0.05"))
    assert done.returncode == 0, done.stderr
    outputs = {file.name: file.read_text() for file in tmp_path.glob("scaling-*/*.out")}
    assert outputs.keys() == {"ranks-1.out", "ranks-2.out", "ranks-4.out"}
    for ranks in (1, 2, 4):
        assert f"ranks-{ranks}.out" in done.stdout
        assert "allreduce" in outputs[f"ranks-{ranks}.out"]
    assert "4 ranks, up to 2 on each of 2 nodes" in done.stdout


SUITE = """
repeats = 1
timeout_s = 60
[[run]]
case = "collectives"
options = { ops = "barrier,allreduce", bytes = "8,64KiB", rounds = 5, seconds = 0.05 }
"""


def test_a_suite_of_benchmarks(slurm, tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    options = ("--strategy", "scaling", "--nodes", "2", "--tasks-per-node", "2")
    bench = ("mpistrat", "bench", "scale", "suite.toml")
    done = submit(slurm, tmp_path, *options, program=bench)
    assert done.returncode == 0, done.stderr + done.stdout
    job = job_of(done)
    points = read_points([tmp_path / f"scaling-{job}.jsonl"])
    assert sorted((one.setup.ranks, one.setup.nodes) for one in points) == [(1, 1), (2, 1), (4, 2)]
    for point in points:
        setup = point.setup
        assert point.status == "ok", point.message
        assert (point.job["id"], len(point.placement)) == (job, setup.ranks)
        assert len({one.host for one in point.placement}) == setup.nodes
        assert all(one["ranks"] == setup.ranks for one in point.records)
        assert {one["op"] for one in point.records} == {"barrier", "allreduce"}


def test_a_failing_run_of_the_suite_does_not_end_it(slurm, tmp_path):
    fail = "import os; raise SystemExit(os.environ['SLURM_STEP_NUM_TASKS'] == '2')"
    options = ("--strategy", "scaling", "--nodes", "2", "--tasks-per-node", "1")
    done = submit(slurm, tmp_path, *options, program=(sys.executable, "-c", fail))
    assert done.returncode == 1
    assert "2 ranks: failed, see scaling-" in done.stdout
    assert len(list(tmp_path.glob("scaling-*/*.out"))) == 2
