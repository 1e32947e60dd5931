"""``bench tune`` writes a table, and rank 0's table holds for all ranks."""

import json
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from helpers.pretend.nodes import pretended_nodes
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import (
    CALLS,
    HALVES,
    WIRE,
    Tuning,
    WireTuning,
    wire_from_entry,
)
from mpistrat.collectives.backends.shared_memory.tuning_table import node_key, wire_key
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long, with_all

pytest.importorskip("typer")
from rich.console import Console

from mpistrat.bench.tuning import on_node
from mpistrat.bench.tuning.comparison import Bench

pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason="there are no kernels")

LISTENS = """
import mpistrat, numpy as np
from mpistrat.collectives.backends.shm import ShmBackend
told = []
tune = ShmBackend.tune
ShmBackend.tune = lambda self, tunings: (told.append(tunings), tune(self, tunings))
comm = mpistrat.Communicator(backend="shm")
assert comm.allreduce(np.ones(100_000))[-1] == comm.size
print(len(told[0]), told[0]["alltoall"].chunk_bytes)
"""


@takes_long()
def test_a_table_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    tuning_table.write(file, node_key(3), {"bcast": Tuning(chunk_bytes=65536)})
    argv = ["-m", "mpistrat", "bench", "tune", "--rounds", "1", "--calls", "scatter"]
    said = run_job([*argv, "--out", str(file)], 3, timeout_s=60).check().ranks[0].stdout
    assert "scatter, 4194304 bytes" in said
    assert list(json.loads(file.read_text())[node_key(3)]) == ["bcast", "scatter"]


TUNES = """
import json
import sys
from pathlib import Path
from mpi4py import MPI
from mpistrat.bench.cases.tune import command
from mpistrat.errors import UsageError
for file, *calls in json.loads(sys.argv[1]):
    if MPI.COMM_WORLD.Get_rank():
        file = __file__  # whatever is there, only rank 0's file counts
    try:
        command(1, ",".join(calls), Path(file))
    except UsageError as error:
        print(error)
    print("---")
"""


def tune_in_turn(folder: Path, runs: list[list[str]], node_size: int = 0) -> list[list[str]]:
    """Measure on two ranks as each list of a file and calls says; return what each rank said."""
    program = folder / "tunes.py"
    program.write_text(TUNES)
    env = {"MPISTRAT_NODE_SIZE": str(node_size)}
    result = run_job([str(program), json.dumps(runs)], 2, timeout_s=60, env=env).check()
    parts = [rank.stdout.replace("\n", " ").split("---")[: len(runs)] for rank in result.ranks]
    return [list(said) for said in zip(*parts, strict=True)]


def tune(folder: Path, file: Path, *calls: str, node_size: int = 0) -> list[str]:
    """Measure on two ranks; return what each said."""
    return tune_in_turn(folder, [[str(file), *calls]], node_size)[0]


@takes_long()
def test_what_is_wrong_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    kept = json.dumps({node_key(2): {"bcast": {"chunk_bytes": -1}}}).encode()
    wrong = {"list": b"[]", "bytes": b"\xff", "kept": kept}
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
    no_table = f"{tmp_path}/{{}} is no table of tunings: {{}}"
    cases = {
        ("new", "sum"): ["['sum']; expected some of ['allreduce'"],
        ("new", " ", ""): ["--calls ' ,' names no kind of call; expected some of ['allreduce'"],
        ("list",): [no_table.format("list", "got []; expected an object"), "remove it"],
        ("bytes",): [no_table.format("bytes", "it holds no JSON"), "remove it"],
        ("/proc/none/tuning.json", "scatter"): ["/none/tuning.json cannot be read and written"],
        ("kept", "scatter"): [
            "cannot keep what it has for other kinds of call",
            "chunk_bytes is -1",
        ],
    }
    runs = [[str(tmp_path / file), *calls] for file, *calls in cases]
    for (case, words), ranks in zip(cases.items(), tune_in_turn(tmp_path, runs), strict=True):
        for said in ranks:
            assert all(word in said for word in words), (case, said)
            assert "of the time" not in said
    assert {name: (tmp_path / name).read_bytes() for name in wrong} == wrong
    assert not (tmp_path / "new").exists()


@takes_long()
def test_a_wrong_entry_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    sound = {"chunk_bytes": 65536}
    wrong = {"scatter": None, "bcast": sound}
    file.write_text(json.dumps({node_key(2): wrong, "other": 7}))
    assert "of the time" in tune(tmp_path, file, "scatter")[0]
    table = json.loads(file.read_text())
    assert table["other"] == 7
    assert table[node_key(2)]["bcast"] == asdict(Tuning(**sound))
    assert table[node_key(2)]["scatter"].keys() == asdict(Tuning()).keys()


@takes_long()
def test_a_wrong_wire_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    with pretended_nodes(1):
        file.write_text(json.dumps({wire_key(1, 2): []}))
        assert "of the time" in tune(tmp_path, file, node_size=1)[0]
        entry = json.loads(file.read_text())[wire_key(1, 2)]
    assert wire_from_entry(entry) == WireTuning(**entry["wire"])


@takes_long()
@pytest.mark.mpi(ranks=3)
def test_chunks_of_any_size_are_whole_elements():
    from mpi4py import MPI

    with Communicator(MPI.COMM_WORLD, "shm") as comm:
        for nbytes in (1, 65, 12345, 100_001):
            comm.backend.tune({"allreduce": Tuning(chunk_bytes=nbytes, flat_bytes=1)})
            total = comm.allreduce(np.arange(30_000) + comm.rank)
            assert (total == 3 * np.arange(30_000) + 3).all()


@takes_long()
@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_that_all_reduce_go_on_finding_out_by_themselves():
    """A table that says when to read, or never to, would end that (algorithm_choice.h)."""
    from mpi4py import MPI

    few = {"_CHUNKS": (65536,), "_FLAT": (4096,), "_WHOLE": (16384,), "_STREAM": (1 << 20,)}
    with patch.multiple(on_node, **few), Communicator(MPI.COMM_WORLD, "shm") as comm:
        bench = Bench(comm, Console(quiet=True), rounds=1)
        search = on_node.NodeSearch(bench, comm.backend)
        for name in ("allreduce", "allreduce" + HALVES):
            assert search.best(name).remote_bytes == 0
        with patch.object(on_node, "_REMOTE", (1 << 20,)):
            assert search.best("reduce_scatter").remote_bytes > 0


@takes_long()
def test_rank_0s_table_holds_for_all(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    entry = Tuning(chunk_bytes=65536, flat_bytes=4096, whole_bytes=1 << 20)
    every = {name + kind: entry for name in CALLS for kind in ("", HALVES)}
    tuning_table.write(file, node_key(2), every)
    program = tmp_path / "listens.py"
    program.write_text(
        "import os\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.Get_rank(): os.environ['MPISTRAT_TUNING'] = '/nowhere'\n" + LISTENS
    )
    env = {"MPISTRAT_TUNING": str(file)}
    result = run_job([str(program)], 2, timeout_s=30, env=env).check()
    assert [rank.stdout.split() for rank in result.ranks] == [["16", "65536"]] * 2


# ---------------------------------------------------------------------------- several nodes


@takes_long()
def test_a_wire_is_measured_and_written(tmp_path: Path) -> None:
    """Nodes of two ranks and of one."""
    file = tmp_path / "tuning.json"
    tuning_table.write(file, node_key(3), {"bcast": Tuning(chunk_bytes=65536)})
    argv = ["-m", "mpistrat.bench", "tune", "--rounds", "1", "--out", str(file)]
    env = {"MPISTRAT_NODE_SIZE": "2"}
    said = run_job(argv, 3, timeout_s=60, env=env).check().ranks[0].stdout
    for name in ("short_bytes", "ring_bytes", "ring_most_bytes"):
        assert f"of the time with {name}=" in said.replace("\n", "")
    with pretended_nodes(2):
        table = json.loads(file.read_text())
        assert sorted(table) == sorted([node_key(3), wire_key(1, 2)])
        assert sorted(table[wire_key(1, 2)]["wire"]) == sorted(asdict(WireTuning()))


@takes_long()
def test_calls_of_one_node_are_refused_on_several() -> None:
    argv = ["-m", "mpistrat.bench", "tune", "--calls", "scatter"]
    result = run_job(argv, 2, timeout_s=30, env={"MPISTRAT_NODE_SIZE": "1"})
    assert result.returncode != 0
    assert "expected some of ['wire'] here" in result.output


LISTENS_TO_WIRES = """
import os
from mpi4py import MPI
if MPI.COMM_WORLD.Get_rank(): os.environ['MPISTRAT_TUNING'] = '/nowhere'
import mpistrat, numpy as np
from mpistrat.collectives.backends.hierarchical import HierarchicalBackend
told = []
tune = HierarchicalBackend.tune_wire
HierarchicalBackend.tune_wire = lambda self, tuning: (told.append(tuning), tune(self, tuning))
comm = mpistrat.Communicator()
assert comm.allreduce(np.ones(100_000))[-1] == comm.size
print(*told)
"""


@takes_long()
@pytest.mark.parametrize(
    ("ranks", "wrong", "found"),
    [(2, False, WireTuning(1001, 2003, 4007)), (3, True, WireTuning())],
    ids=["right", "wrong"],
)
def test_rank_0s_wire_holds_for_all(tmp_path, ranks, wrong, found) -> None:
    file = tmp_path / "tuning.json"
    entry = WireTuning(1001, 9000, 4007) if wrong else found
    with pretended_nodes(1):
        tuning_table.write(file, wire_key(1, ranks), {WIRE: entry})
    env = {"MPISTRAT_TUNING": str(file), "MPISTRAT_NODE_SIZE": "1"}
    result = run_job(["-c", LISTENS_TO_WIRES], ranks, timeout_s=30, env=env).check()
    assert [rank.stdout.strip() for rank in result.ranks] == [str(found)] * ranks
    assert ("is no table of tunings" in result.ranks[0].stderr) == wrong


FIGURES = [
    (1, 1, 1),
    (7, 13, 13),
    (999, 1001, 4001),
    (20_000, 333, 100_003),
    (8192, 1 << 62, 1 << 62),
    (-5, -7, -9),  # what no table says
    (100, 5000, 10),
]


@takes_long()
@pytest.mark.mpi(ranks=[2, 3, 4] if with_all() else 3, timeout_s=40)
@pytest.mark.parametrize("figures", FIGURES, ids=str)
def test_sums_are_right_whatever_the_sizes_are(figures):
    from mpi4py import MPI

    for node_size in range(1, MPI.COMM_WORLD.size):
        with pretended_nodes(node_size), Communicator(MPI.COMM_WORLD, "hierarchical") as comm:
            assert comm.backend.nodes.count > 1
            comm.backend.tune_wire(WireTuning(*figures))
            for nbytes in {min(max(figure, 0), 30_000) for figure in figures}:
                for dtype in (np.float64, np.float16, np.int8):
                    check_around(comm, nbytes, dtype)


def check_around(comm, nbytes, dtype):
    """Check calls whose arrays, or blocks of each rank, are a little shorter or longer."""
    limit = nbytes // np.dtype(dtype).itemsize
    for count in {max(limit - 1, 0), limit, limit + 1, limit * comm.size + 1}:
        everyone = [(np.arange(count) % 5 + rank).astype(dtype) for rank in range(comm.size)]
        mine, total = everyone[comm.rank], sum(everyone)
        np.testing.assert_array_equal(comm.allreduce(mine), total)
        part = np.array_split(total, comm.size)[comm.rank]
        np.testing.assert_array_equal(comm.reduce_scatter(mine), part)
        np.testing.assert_array_equal(
            comm.bcast(mine, count % comm.size), everyone[count % comm.size]
        )
        np.testing.assert_array_equal(comm.allgather(mine), np.concatenate(everyone))


@takes_long()
@pytest.mark.mpi(ranks=3)
def test_the_wires_sizes_decide_how_it_gathers():
    """Around a ring or in fewer steps; wire_direct_messages_test.cc sees which of them it is."""
    from mpi4py import MPI

    with pretended_nodes(1), Communicator(MPI.COMM_WORLD, "hierarchical") as comm:
        for ring_bytes in (1000, 1001, 0):
            comm.backend.tune_wire(WireTuning(ring_bytes=ring_bytes))
            gathered = comm.allgather(np.full(1000, comm.rank, np.int8))
            np.testing.assert_array_equal(gathered, np.repeat(range(3), 1000))
