"""The benchmark of collectives: sizes, formulas, answers, repeats and records."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import BackendNotFoundError, BackendUnavailableError, UsageError
from mpistrat.testing.threads import run_ranks

pytest.importorskip("typer")

from mpistrat.bench.collectives_options import make_grid
from mpistrat.bench.harness import expected_results
from mpistrat.bench.harness.bandwidth import algbw_gbps, busbw_gbps
from mpistrat.bench.harness.buffers import Memory, make_problems
from mpistrat.bench.harness.calibration import Budget, calibrate
from mpistrat.bench.harness.expected_results import OPS, Task
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.problem import make_problem
from mpistrat.bench.harness.row import Heading, Row, run_row
from mpistrat.bench.harness.session import open_session
from mpistrat.bench.harness.sides import (
    Label,
    Side,
    backend_call,
    backend_side,
    memcpy_side,
)
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.options import parse_dtype, split
from mpistrat.bench.peers import open_peers, parse_peers
from mpistrat.bench.peers.gloo import GlooPeer
from mpistrat.bench.rows_table import rows_table
from mpistrat.bench.sizes import format_bytes, parse_sizes

FLOAT = np.dtype(np.float32)


def task(op="allreduce", rank=0, size=1, **changes):
    return replace(Task(op, FLOAT, "sum", 96, rank, size, op == "bcast"), **changes)


# ----------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8,4KiB, 1MiB", [8, 4096, 1 << 20]),
        ("1kB,2 MB,3GiB,0", [1000, 2_000_000, 3 << 30, 0]),
        ("8:512", [8, 32, 128, 512]),
        ("8:100", [8, 32, 100]),
        ("8:64:2", [8, 16, 32, 64]),
        ("4KiB:4KiB", [4096]),
        ("32,8:128", [32, 8, 128]),
    ],
)
def test_sizes(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text", ["", "8,", "x", "-8", "8K", "8kib", "64:8", "0:8", "8:64:1", "1:2:3:4"]
)
def test_what_is_not_a_size_is_refused(text):
    with pytest.raises(UsageError, match=r"expected"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (8, "8 B"),
        (1000, "1000 B"),
        (4096, "4 KiB"),
        (3 << 20, "3 MiB"),
        (1 << 30, "1 GiB"),
    ],
)
def test_sizes_are_written_as_they_are_read(nbytes, text):
    assert format_bytes(nbytes) == text
    assert parse_sizes(text) == [nbytes]


# -------------------------------------------------------------------------------- formulas


def test_algorithm_bandwidth_is_bytes_over_time():
    assert algbw_gbps(64_000, 8.0) == pytest.approx(8.0)
    assert algbw_gbps(0, 8.0) == 0.0


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks):
    share = (ranks - 1) / ranks
    shares = dict.fromkeys(("reduce_scatter", "allgather", "gather", "scatter", "alltoall"), share)
    shares |= {"allreduce": 2 * share, "allreduce_many": 2 * share}
    shares |= {"bcast": 1.0, "reduce": 1.0, "barrier": 1.0}
    assert shares.keys() >= set(OPS)
    for op, factor in shares.items():
        assert busbw_gbps(op, ranks, 3000, 2.0) == pytest.approx(1.5 * factor)


def test_statistics_of_rounds():
    timing = Timing(tuple(map(float, range(1, 102))))
    assert (timing.min_us, timing.median_us, timing.p99_us, timing.max_us) == (1, 51, 100, 101)
    assert Timing((1.0, 2.0, 4.0)).speedup(Timing((2.0, 8.0, 12.0))) == 3.0


def test_every_side_fills_its_share_of_the_time():
    assert calibrate([1e-6, 1e-3], Budget(rounds=10, seconds=0.2)) == (10, [10_000, 10])


def test_slow_sides_get_fewer_rounds_but_not_less_than_five():
    assert calibrate([0.1], Budget(rounds=20, seconds=1.0)) == (10, [1])
    assert calibrate([10.0, 1.0], Budget(rounds=20, seconds=1.0)) == (5, [1, 1])
    assert calibrate([10.0], Budget(rounds=3, seconds=1.0)) == (3, [1])


# --------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("name", ["float32", "int8", "bool", "complex64"])
def test_answers_are_those_of_numpy(name):
    size, dtype = 3, np.dtype(name)
    for op in OPS[:-1]:
        tasks = [task(op, rank, size, dtype=dtype) for rank in range(size)]
        given = [expected_results.inputs(one) for one in tasks]
        expected = naive(op, given, size)
        for one, answer in zip(tasks, expected, strict=True):
            found = expected_results.expected(one)
            if answer is None:
                assert found is None, op
            else:
                np.testing.assert_array_equal(found, answer, err_msg=op)
                assert found.dtype == dtype
    assert expected_results.expected(task("barrier")) is None


def naive(op, given, size):
    if op in ("allreduce", "reduce", "reduce_scatter"):
        total = given[0] + given[1] + given[2]
        if op == "reduce_scatter":
            return np.split(total, size)
        return [total] * size if op == "allreduce" else [total, None, None]
    if op == "bcast":
        return [given[0]] * size
    if op == "scatter":
        return np.split(given[0], size)
    if op == "alltoall":
        return [np.concatenate([np.split(one, size)[r] for one in given]) for r in range(size)]
    everything = np.concatenate(given)
    return [everything] * size if op == "allgather" else [everything, None, None]


@pytest.mark.parametrize(("nbytes", "count"), [(0, 3), (100, 24), (96, 24), (5, 3)])
def test_sizes_are_rounded_to_equal_pieces(nbytes, count):
    gathered = task("allgather", size=3, wanted_bytes=nbytes)
    assert (gathered.count, gathered.nbytes, gathered.piece) == (count, 4 * count, count // 3)
    assert (gathered.send_count, gathered.recv_count) == (count // 3, count)


@pytest.mark.parametrize("reduction", ["sum", "prod", "min", "max", "mean"])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32"])
def test_communicator_is_right(name, reduction):
    dtype = parse_dtype(name)

    def on_rank(comm):
        with Communicator(comm) as communicator:
            for op in OPS:
                one = task(
                    op, communicator.rank, communicator.size, dtype=dtype, reduction=reduction
                )
                problem = make_problem(one)
                assert problem.is_right(backend_call(communicator, problem)), op

    run_ranks(3, on_rank)


@pytest.mark.parametrize("op", ["allreduce", "reduce", "bcast"])
def test_in_place_the_answer_takes_the_inputs_memory(op):
    def on_rank(comm):
        with Communicator(comm) as communicator:
            problem = make_problem(task(op, communicator.rank, communicator.size, in_place=True))
            assert problem.send is problem.recv or (op, communicator.rank > 0) == ("reduce", True)
            call = backend_call(communicator, problem)
            assert problem.is_right(call)
            problem.settle()
            call()
            assert np.isfinite(problem.send).all()

    run_ranks(2, on_rank)


@pytest.mark.parametrize("name", ["float32", "int8", "bool"])
def test_what_does_nothing_is_wrong(name):
    for op in OPS[:-1]:
        problem = make_problem(task(op, rank=0, size=2, dtype=np.dtype(name)))
        if op != "bcast":  # whose root has the answer before
            assert not problem.is_right(lambda: None), op
    assert not make_problem(task("bcast", rank=1, size=2)).is_right(lambda: None)


def test_almost_right_is_wrong():
    problem = make_problem(task(size=2))
    right = expected_results.expected(problem.task)
    assert problem.is_right(lambda: right)
    assert problem.is_right(lambda: right * np.float32(1 + 2e-7))
    assert not problem.is_right(lambda: right * np.float32(1 + 1e-5))
    assert not problem.is_right(lambda: right[:-1])
    assert not problem.is_right(lambda: right.astype(np.float64))
    assert not problem.is_right(lambda: np.roll(right, 1))


# ---------------------------------------------------------------------------------- options


def grid(ops="allreduce", dtypes="float32", reduction="sum", in_place=False, memory=None):
    table = ops.split(","), dtypes.split(","), [8, 64]
    return make_grid(table, reduction, in_place, memory or Memory.PRIVATE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops": "allreduce,sum"}, "'sum' is not known"),
        ({"dtypes": "float33"}, "float33"),
        ({"dtypes": "object"}, "cannot be sent"),
        ({"reduction": "add"}, "not a reduction"),
        ({"reduction": "xor"}, "no meaning"),
        ({"ops": "allgather", "in_place": True}, "--in-place is for"),
        ({"dtypes": "int8", "reduction": "mean", "in_place": True}, "another dtype"),
        ({"ops": "bcast", "memory": Memory.SHARED}, "--shared is for"),
        ({"in_place": True, "memory": Memory.SHARED}, "cannot get them in place"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(changes, message):
    with pytest.raises(UsageError, match=message):
        grid(**changes)


def test_grid_has_a_table_for_each_op_and_dtype():
    tables = list(grid("barrier,bcast,reduce", "int8,float32").tables(0, 2))
    forms = [
        [(one.op, one.dtype.name, one.wanted_bytes, one.in_place) for one in t] for t in tables
    ]
    assert forms == [
        [("barrier", "int8", 0, False)],
        [("bcast", "int8", 8, True), ("bcast", "int8", 64, True)],
        [("bcast", "float32", 8, True), ("bcast", "float32", 64, True)],
        [("reduce", "int8", 8, False), ("reduce", "int8", 64, False)],
        [("reduce", "float32", 8, False), ("reduce", "float32", 64, False)],
    ]


def test_lists_of_names():
    assert split("auto, mpi,auto", "backends") == ["auto", "mpi"]
    assert parse_peers("") == []
    assert parse_peers("all") == ["mpi4py", "gloo", "horovod", "tensorflow"]
    assert parse_peers("gloo,mpi4py") == ["gloo", "mpi4py"]
    with pytest.raises(UsageError, match="expected names"):
        split("auto,,mpi", "backends")
    with pytest.raises(UsageError, match="'nccl' is not known"):
        parse_peers("nccl")


# ---------------------------------------------------------------------- sides that are absent


def test_peer_that_is_absent_anywhere_is_left_out_everywhere(monkeypatch):
    monkeypatch.setattr(GlooPeer, "missing", lambda self: "rank 1 has none")

    def on_rank(comm):
        lines = []
        with Communicator(comm) as communicator:
            assert open_peers(["gloo"], communicator, lines.append) == []
        return lines

    assert run_ranks(2, on_rank) == [["peer gloo: left out, rank 1 has none"]] * 2


def test_backend_that_cannot_work_is_left_out(capsys):
    with open_session(["threads", "mpi"], []) as session:
        assert list(session.backends) == ["threads"]
    assert capsys.readouterr().out.startswith(
        "backend mpi: left out, backend 'mpi' cannot be used"
    )
    with (
        pytest.raises(BackendUnavailableError, match="none of the backends"),
        open_session(["mpi"], []),
    ):
        pass
    with pytest.raises(BackendNotFoundError), open_session(["nothing"], []):
        pass


# --------------------------------------------------------------------------------- memory


def test_registered_buffers_come_from_each_backend(monkeypatch):
    made = []

    def empty(self, shape, dtype=np.float32, *, shared=False):
        made.append((shape, np.dtype(dtype), shared))
        return np.empty(shape, dtype)

    monkeypatch.setattr(Communicator, "empty", empty, raising=False)
    with open_session(["auto", "threads"], []) as session:
        own, common = make_problems(task(), session, Memory.REGISTERED)
        assert common is own["auto"]
        assert own["threads"].send is not common.send
        assert made == [((24,), FLOAT, False)] * 4
        made.clear()
        own, common = make_problems(task(), session, Memory.SHARED)
        assert made == [((24,), FLOAT, False), ((24,), FLOAT, True)] * 2
        assert common.send is own["auto"].send
        assert common.recv is not own["auto"].recv


# ------------------------------------------------------------------------------------ rows


def test_row_becomes_json_lines(tmp_path):
    with open_session(["auto"], []) as session:
        problem = make_problem(task(in_place=True))
        sides = [
            backend_side("auto", session.backends["auto"], problem),
            memcpy_side(problem.task),
        ]
        heading = Heading("collectives", problem.task, is_registered=True)
        row = run_row(heading, sides, [problem], session, Budget(rounds=3, seconds=0.003))
    file = tmp_path / "rows.jsonl"
    write_lines(file, row.records())
    ours, copy = map(json.loads, file.read_text().splitlines())
    assert (ours["side"], ours["kind"], ours["backend"]) == (
        "auto (threads)",
        "backend",
        "threads",
    )
    assert (copy["side"], copy["kind"]) == ("memcpy", "bound")
    assert ours["speedup"].keys() == {"memcpy"}
    assert copy["speedup"] == {}
    for record in (ours, copy):
        expected = {"case": "collectives", "op": "allreduce", "dtype": "float32", "ranks": 1}
        expected |= {"nodes": 1, "bytes": 96, "in_place": True, "registered": True}
        expected |= {"shared": False, "reduction": "sum", "rounds": 3, "correct": True}
        assert expected.items() <= record.items()
        assert record.keys() >= {"mpistrat", "date", "git", "python", "numpy", "mpi", "host"}
        times = record["time_us"]
        assert list(times) == ["min", "median", "p99", "max"]
        assert list(times.values()) == sorted(times.values())
    assert copy["algbw_GBps"] == copy["busbw_GBps"] > 0
    assert ours["busbw_GBps"] == 0  # one rank sends nothing


def test_wrong_side_is_named():
    right, wrong = Label("a", "backend", "a", "bcast"), Label("b", "peer", "b", "bcast")
    row = Row(
        Heading("case", task("bcast")), 1, [right, wrong], [Timing((1.0,))] * 2, [True, False]
    )
    assert row.wrong == ["b: bcast of 96 bytes of float32 is wrong"]
    assert list(rows_table([row]).columns[3].cells) == ["a", "b WRONG"]


def test_side_that_is_wrong_on_one_rank_is_wrong():
    with open_session(["auto"], []) as session:
        label = Label("bad", "peer", "bad", "allreduce", is_base=True)
        side = Side(label, partial(int), partial(bool))
        row = run_row(Heading("case", task()), [side], [], session, Budget(1, 0.001))
    assert row.correct == [False]
