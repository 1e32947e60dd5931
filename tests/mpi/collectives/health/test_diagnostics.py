"""Records, stacks and timelines of a job, to find out what went wrong or takes long.

Real programs under mpirun, looked at from outside.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from mpistrat.testing.launcher import JobResult, run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]

HEADER = """
import os, signal, sys, time
import numpy as np
import mpistrat as ms
comm = ms.Communicator()
rank, size = comm.rank, comm.size
for _ in range(5):
    comm.allreduce(np.ones(3, np.float32))
"""
STALL = """
def read_the_input(seconds):
    {how}
if rank == 1:
    read_the_input(8)
comm.allreduce(np.ones(3), timeout=0.5)
"""


def run(body: str, ranks: int = 2, **env: str) -> JobResult:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": path, "MPISTRAT_GRACE": "1", **env}
    return run_job(["-c", HEADER + body], ranks, 40.0, env=settings)


def events(path: Path) -> list[dict]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {event["ph"] for event in found} <= {"X", "M"}
    return [event for event in found if event["ph"] == "X"]


# ----------------------------------------------------------------------------------- stacks


@takes_long()
@pytest.mark.parametrize("nodes", ["one node", pytest.param("several", marks=takes_long())])
def test_the_stack_of_a_rank_that_does_not_come(nodes: str) -> None:
    result = run(
        STALL.format(how="time.sleep(seconds)"),
        ranks=3,
        MPISTRAT_NODE_SIZE="0" if nodes == "one node" else "1",
    )
    assert result.returncode != 0, result.output
    assert not result.timed_out, result.output
    seen = [output.stderr for r, output in enumerate(result.ranks) if r != 1]
    for said in seen:
        assert "CommunicationTimeoutError" in said, result.output
        assert "ranks that did not come: 1;" in said, result.output
        assert "rank 1 came last to call 6, allreduce(sum, float32) of 12 bytes" in said
        assert "in read_the_input" in said, result.output


@takes_long()
def test_a_stopped_rank_does_not_answer() -> None:
    result = run(STALL.format(how="os.kill(os.getpid(), signal.SIGSTOP)"))
    assert "rank 1 did not answer within 1 s: it is stopped" in result.output, result.output


@takes_long()
def test_another_communicator_is_named() -> None:
    result = run(
        """
other = ms.Communicator(backend="mpi")
if rank == 1:
    other.iallreduce(np.ones(5))
    time.sleep(8)
comm.allreduce(np.ones(3), timeout=0.5)
"""
    )
    assert "is in another communicator's call 2, allreduce(sum, float64)" in result.output


@takes_long()
def test_the_thread_that_answers_keeps_no_program_from_its_end_and_is_not_in_children() -> None:
    result = run(
        """
import threading
names = lambda: [thread.name for thread in threading.enumerate()]
assert "mpistrat stacks" in names()
child = os.fork()
if child == 0:
    os._exit("mpistrat stacks" in names())
assert os.waitpid(child, 0)[1] == 0
print("well")
"""
    )
    assert result.returncode == 0, result.output
    assert all(output.stdout.strip() == "well" for output in result.ranks)
    assert result.duration_s < 20


# ---------------------------------------------------------------------------------- records


@takes_long()
def test_every_rank_shows_its_last_calls_after_an_error() -> None:
    result = run(
        """
if rank == 1:
    raise ValueError("only on one rank")
comm.barrier()
""",
        ranks=3,
    )
    assert result.returncode != 0
    for r, output in enumerate(result.ranks):
        said = [line for line in output.stderr.splitlines() if f"[mpistrat {r}/3]" in line]
        assert said[0].endswith("the last calls of this communicator:"), result.output
        assert sum("the last calls" in line for line in said) == 1
        assert sum("allreduce(sum, float32) of 12 bytes: done in" in line for line in said) == 5
        assert ("barrier(): failed in" in said[-1]) == (r != 1), result.output


@pytest.mark.mpi(ranks=2)
def test_fast_calls_are_recorded_as_all_others() -> None:
    with mpistrat.Communicator() as comm:
        before = comm.call_log.sequence
        comm.label = "the reason"
        comm.allreduce(np.ones(3, np.float16), "mean")
        comm.allreduce([1, 2, 3], "max")
        fast, general = comm.records()[-2:]
        first = "allreduce", "mean", "float16", 6
        assert (fast.op, fast.reduction, fast.dtype, fast.nbytes) == first
        assert (general.op, general.reduction, general.dtype) == ("allreduce", "max", "int64")
        assert fast.label == general.label == "the reason"
        assert (fast.sequence, general.sequence) == (before + 1, before + 2)
        assert fast.start_ns < fast.end_ns <= general.start_ns
        assert {record.state for record in comm.records()} == {"done"}


# --------------------------------------------------------------------------------- timeline


@takes_long()
@pytest.mark.parametrize("node_size", ["0", "1"])
def test_timeline_of_a_job(tmp_path: Path, node_size: str) -> None:
    path = tmp_path / "run.json"
    body = "for _ in range(5_000): comm.allreduce(np.ones(3, np.float32))\n"  # written in parts
    result = run(body, MPISTRAT_TIMELINE=str(path), MPISTRAT_NODE_SIZE=node_size)
    assert result.returncode == 0, result.output
    assert list(tmp_path.iterdir()) == [path]
    found = events(path)
    by_rank = {
        r: {e["args"]["sequence"]: e for e in found if e["tid"] == r and e["name"] == "allreduce"}
        for r in range(2)
    }
    assert [len(calls) for calls in by_rank.values()] == [5_005, 5_005]
    assert len({event["pid"] for event in found}) == (1 if node_size == "0" else 2)
    # One clock: no rank leaves a call before the other one has come.
    for number, first in by_rank[0].items():
        second = by_rank[1][number]
        late = max(first["ts"], second["ts"]) - 2000.0
        assert first["ts"] + first["dur"] > late
        assert second["ts"] + second["dur"] > late


@takes_long()
def test_timeline_of_a_job_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = run(STALL.format(how="time.sleep(60)"), MPISTRAT_TIMELINE=str(path))
    assert result.returncode != 0
    parts = [tmp_path / f"run.json.rank{r}" for r in range(2)]
    assert sorted(tmp_path.iterdir()) == parts, result.output
    for r, part in enumerate(parts):
        calls = [event for event in events(part) if event["name"] == "allreduce"]
        assert {event["tid"] for event in calls} == {r}
        assert len(calls) == 6 - r  # the last one failed, and rank 1 never came to it
    assert events(parts[0])[-1]["args"]["state"] == "failed"


@takes_long()
def test_ranks_with_different_settings_are_told() -> None:
    body = HEADER.replace(
        "comm = ms",
        "os.environ['MPISTRAT_CHECKS'] = os.environ.get('PMI_RANK', "
        "os.environ.get('OMPI_COMM_WORLD_RANK', ''))[:1]\ncomm = ms",
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = run_job(["-c", body], 2, 40.0, env={"PYTHONPATH": path, "MPISTRAT_LOG": "INFO"})
    assert "MPISTRAT_CHECKS: 0 on ranks [0]; 1 on ranks [1]" in result.output, result.output
