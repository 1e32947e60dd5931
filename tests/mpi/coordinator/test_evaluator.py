"""An evaluator beside the training: real programs, one text for all roles."""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import LauncherError, find_launcher, run_job
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = """
import os, signal, sys, time
import numpy as np
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.coordinator import SidecarEvaluator
from mpistrat.train import Checkpoint, CheckpointManager

folder, way, servers = sys.argv[1:]
resolver = MPIClusterResolver(num_ps=int(servers), num_evaluators=1)
if resolver.task_type in ("worker", "ps"):
    ms.Server(resolver).join()
    print(resolver.task_type, resolver.task_id, "is done")
    sys.exit(0)
if resolver.task_type == "evaluator":
    server = ms.Server(resolver)
    if way == "join":
        server.join()
        sys.exit(0)
    table = ms.Variable(np.zeros((7, 2)))  # in parts on the ps, whole here

    def evaluate(path):
        assert (table.numpy() == table.numpy()[0, 0]).all()
        open(f"{folder}-{os.path.basename(path)}", "w").close()  # the chief waits for it
        if way in ("fails", "kill"):  # the chief has work for half a second
            signal.raise_signal(signal.SIGKILL) if way == "kill" else 1 / 0
        return float(table.numpy()[0, 0])

    checkpoint = Checkpoint(other=table) if way == "lacks" else Checkpoint(table=table)
    most = 2 if way == "two" else None
    evaluator = SidecarEvaluator(server, checkpoint, folder, evaluate, most)
    results = evaluator.start()
    before = list(results)
    assert evaluator.start() == evaluator.results == before  # there is nothing new
    print(*[f"{os.path.basename(path)}={value:g}" for path, value in results])
    sys.exit(0)
partitioner = ms.experimental.partitioners.FixedShardsPartitioner(2)
strategy = ms.ParameterServerStrategy(resolver, partitioner)
coordinator = ms.coordinator.ClusterCoordinator(strategy)
assert coordinator.num_workers == int(servers)
with strategy.scope():
    table = ms.Variable(np.zeros((7, 2)))
manager = CheckpointManager(Checkpoint(table=table, more=ms.Variable(1.0)), folder, max_to_keep=1)

def work():
    time.sleep(0.01)

for number in range(1, 4):
    table.assign(np.full((7, 2), float(number)))
    seen = f"{folder}-{os.path.basename(manager.save())}"
    end = time.monotonic() + 20
    waits = way == "all" or number <= {"two": 2, "kill": 1, "fails": 1}.get(way, 0)
    while waits and not os.path.exists(seen) and time.monotonic() < end:
        coordinator.schedule(work).fetch()
    for _ in range(50):
        coordinator.schedule(work)
    coordinator.join()
if way == "chief":
    raise RuntimeError("the chief said so")
table.assign(np.full((7, 2), 4.0))
manager.save()  # at the very end, and evaluated too
print("trained")
"""


def run(tmp_path, way, *options, servers=1):
    """Run a job with so many ps, and as many workers."""
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    arguments = ["-c", PROGRAM, str(tmp_path / "kept"), way, str(servers)]
    result = run_job(arguments, 2 + 2 * servers, 40.0, env={"PYTHONPATH": path}, options=options)
    assert not result.timed_out, result.output
    return result


@takes_long()
def test_checkpoints_are_evaluated_while_others_train(tmp_path):
    result = run(tmp_path, "all", servers=2).check()
    assert result.ranks[5].stdout == "ckpt-1=1 ckpt-2=2 ckpt-3=3 ckpt-4=4\n", result.output
    assert result.ranks[0].stdout == "trained\n"
    assert not any(one.stderr for one in result.ranks), result.output


@takes_long()
@pytest.mark.parametrize("way", ["two", pytest.param("join", marks=repeats())])
def test_an_evaluator_that_has_enough_waits_for_the_end(tmp_path, way):
    result = run(tmp_path, way).check()
    assert result.ranks[3].stdout == ("ckpt-1=1 ckpt-2=2\n" if way == "two" else "")
    assert result.ranks[0].stdout == "trained\n"


@takes_long()
def test_an_error_of_the_chief_ends_the_evaluator(tmp_path):
    result = run(tmp_path, "chief")
    assert result.returncode != 0
    assert "evaluator 0 (rank 3) cannot go on" in result.ranks[3].stderr, result.output
    assert "the chief said so" in result.ranks[3].stderr, result.output


@takes_long()
@pytest.mark.parametrize("way", ["lacks", pytest.param("fails", marks=repeats())])
def test_an_error_of_the_evaluator_ends_the_job(tmp_path, way):
    result = run(tmp_path, way)
    words = "CheckpointMismatchError" if way == "lacks" else "ZeroDivisionError"
    assert result.returncode != 0
    assert words in result.ranks[3].stderr, result.output


@pytest.mark.parametrize("way", ["kill", "fails"])
def test_training_goes_on_without_the_evaluator_where_mpi_outlives_it(tmp_path, way):
    try:
        if find_launcher().kind != "openmpi":
            pytest.skip("needs Open MPI, whose ULFM outlives ranks")
    except LauncherError as error:
        pytest.skip(str(error))
    result = run(tmp_path, way, "--with-ft", "ulfm", servers=2)
    assert result.ranks[0].stdout == "trained\n", result.output
    assert "evaluator 0 (rank 5) has ended; the training goes on" in result.ranks[0].stderr
    assert [one.stdout.split()[-1] for one in result.ranks[1:5]] == ["done"] * 4, result.output


@takes_long()
def test_only_an_evaluator_evaluates(tmp_path):
    wrong = PROGRAM.replace(
        'if resolver.task_type in ("worker", "ps"):',
        'if resolver.task_type == "ps":\n'
        "    SidecarEvaluator(ms.Server(resolver), Checkpoint(), folder, print)\n"
        'if resolver.task_type in ("worker", "ps"):',
    )
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": path, "MPISTRAT_GRACE": "1.5"}
    result = run_job(["-c", wrong, str(tmp_path), "all", "1"], 4, 40.0, env=env)
    assert not result.timed_out, result.output
    assert "SidecarEvaluator of ps 0 (rank 2); expected the Server of a rank whose" in (
        result.ranks[2].stderr
    ), result.output
