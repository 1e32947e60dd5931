"""A parameter server dies while it writes a checkpoint: the last one is there, and restores."""

import os
from pathlib import Path

import pytest

import mpistrat
from helpers.strategy.failing_job import SOON_S, START_S
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = """
import os, signal, sys
import numpy as np
import mpistrat as ms
from mpistrat.checkpoint.files import data_files
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.experimental import partitioners

folder, servers, parts, dies = sys.argv[1], *map(int, sys.argv[2:])
resolver = MPIClusterResolver(num_ps=servers)
write, saves = data_files.write, []

def killed_at_the_second(path, pieces):
    saves.append(path)
    if len(saves) == 2:
        path.write_bytes(write(path, pieces) and path.read_bytes()[:-5])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(path, pieces)

if dies and (resolver.task_type, resolver.task_id) == ("ps", servers - 1):
    data_files.write = killed_at_the_second
if resolver.task_type in ("worker", "ps"):
    ms.Server(resolver).join()
    sys.exit(0)
strategy = ms.ParameterServerStrategy(resolver, partitioners.FixedShardsPartitioner(parts))
coordinator = ms.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    table = ms.Variable(np.zeros((13, 2)))
checkpoint = ms.train.Checkpoint(table=table)
path = ms.train.latest_checkpoint(folder)
if path:
    checkpoint.restore(path).assert_consumed()
    print(os.path.basename(path), table.numpy().sum(), flush=True)
for _ in range(2):
    coordinator.schedule(lambda: table.assign_add(np.ones((13, 2))))
    coordinator.join()
    checkpoint.save(f"{folder}/ckpt")
print("saved", flush=True)
"""


def run(ranks, *arguments):
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    words = [str(one) for one in arguments]
    result = run_job(["-c", PROGRAM, *words], ranks, 40.0, env={"PYTHONPATH": path})
    assert not result.timed_out, result.output
    assert result.duration_s < SOON_S + START_S, result.output
    return result


@takes_long()
@pytest.mark.parametrize("parts", [2, pytest.param(5, marks=repeats())])
def test_the_last_checkpoint_restores_with_another_number_of_servers(tmp_path, parts):
    died = run(4, tmp_path, 2, parts, 1)
    assert died.returncode != 0
    assert "saved" not in died.ranks[0].stdout
    assert (tmp_path / "ckpt-2").is_dir()  # begun
    again = run(3, tmp_path, 1, 3, 0).check()
    assert again.ranks[0].stdout.splitlines() == ["ckpt-1 26.0", "saved"]
    last = run(3, tmp_path, 1, 1, 0).check()
    assert last.ranks[0].stdout.splitlines() == ["ckpt-3 78.0", "saved"]
