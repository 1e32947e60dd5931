"""A timeline is data: what it holds is replayed, and nonsense in it is named."""

import json
from unittest.mock import patch

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError

pytest.importorskip("typer")

from mpistrat.bench.harness import node_memory
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.timeline_replay import timeline_file
from mpistrat.bench.timeline_replay.buffers import check_memory, make_calls, task_of
from mpistrat.bench.timeline_replay.playback import Playback, play, why_wrong
from mpistrat.bench.timeline_replay.recorded_call import Kind, RecordedCall, Recording
from mpistrat.bench.timeline_replay.report import record_of
from mpistrat.bench.timeline_replay.timeline_file import read_recording


def event(op="allreduce", ts=0.0, dur=1.0, rank=0, **args):
    given = {
        "sequence": 2,
        "bytes": 8,
        "dtype": "float32",
        "reduction": "sum",
        "label": None,
        "state": "done",
        "communicator": 0,
        **args,
    }
    return {"name": op, "cat": "collective", "ph": "X", "ts": ts, "dur": dur, "pid": 1} | {
        "tid": rank,
        "args": given,
    }


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "run.json"

    def of(*events):
        path.write_text(json.dumps(list(events)))
        return read_recording(path)

    return of


def test_the_calls_of_the_first_rank_in_their_order(read):
    recording = read(
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "host"}},
        {"name": "NEGOTIATE", "cat": "horovod", "ph": "X", "ts": 1, "dur": 1},
        event("barrier", ts=30.0, dur=5.0, rank=1, bytes=0, dtype=None, reduction=None),
        event(ts=10.0, dur=2.5, rank=1),
        event("close", ts=40.0, rank=1, bytes=0, dtype=None, reduction=None),
        event(ts=50.0, rank=1, state="failed"),
        event(ts=9.0, rank=2),
        event("allgather", ts=12.0, dur=1.0, rank=1, communicator=1, reduction=None),
    )
    assert (recording.source, recording.rank, recording.ranks) == ("run.json", 1, 2)
    assert recording.left_out == 2
    assert [one.kind for one in recording.calls] == [
        Kind("allreduce", "float32", "sum", 8),
        Kind("allgather", "float32", None, 8),
        Kind("barrier", "uint8", None, 0),
    ]
    # The second call began before the end of the first one, on another communicator.
    assert [one.gap_us for one in recording.calls] == [0.0, 0.0, 17.0]
    assert (recording.calls_us, recording.gaps_us) == (8.5, 17.0)


def test_a_scatter_has_the_bytes_of_its_root(read):
    none = {"dtype": None, "reduction": None}
    recording = read(
        event("scatter", bytes=0, **none),
        event("scatter", rank=1, bytes=96, **none),
        event("bcast_object", ts=5.0, sequence=3, bytes=0, **none),
        event("bcast_object", ts=5.0, rank=1, sequence=3, bytes=7, **none),
    )
    assert [one.kind.nbytes for one in recording.calls] == [96, 7]


def test_lists_of_several_dtypes_are_one_array(read):
    kinds = read(
        event("allreduce_many", dtype="mixed", bytes=12, reduction="mean"),
        event("allreduce_many", ts=1, dtype="mixed", bytes=13),
        event("allreduce", ts=2, dtype="bfloat16", bytes=6),
    ).calls
    assert [one.kind.dtype for one in kinds] == ["float32", "uint8", "bfloat16"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "'text' is no object"),
        (event() | {"name": "explode"}, "name is 'explode'; expected one of allreduce, "),
        (event() | {"name": ["allreduce"]}, "name is "),
        (event() | {"args": 5}, "args is 5; expected an object"),
        (event() | {"ts": float("nan")}, "ts is nan; expected microseconds"),
        (event() | {"ts": 10**400}, "ts is a huge number"),
        (event() | {"dur": -1}, "dur is -1"),
        (event() | {"dur": True}, "dur is True"),
        (event() | {"tid": "0"}, "tid is '0'; expected a whole number"),
        (event(bytes=-4), "args.bytes is -4; expected a whole number from 0"),
        (event(bytes=8.0), "args.bytes is 8.0"),
        (event(bytes=1 << 50), "args.bytes is 1125899906842624"),
        (event(bytes=6), "args.bytes is 6; expected whole elements of float32"),
        (event(dtype="object"), "args.dtype is 'object'; expected one of"),
        (event(dtype=None), "args.dtype is None"),
        (event("bcast", dtype="mixed"), "args.dtype is 'mixed'"),
        (event(reduction="average"), "args.reduction is 'average'; expected one of sum"),
        (event(reduction="xor"), "reduction 'xor' has no meaning for dtype float32"),
        (event(state="asleep"), "args.state is 'asleep'; expected one of done"),
        (event(communicator=None), "args.communicator is None"),
        (event(sequence="x" * 100), "args.sequence is 'xxx"),
    ],
)
def test_nonsense_is_named(read, tmp_path, wrong, message):
    with pytest.raises(UsageError) as caught:
        read(event(), wrong)
    assert str(caught.value).startswith(f"{tmp_path / 'run.json'}: event 1: {message}")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[\n", "is no JSON"),
        (b"\xff[]", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"{}", "holds a dict; expected an array of events"),
        (b"[]", "there is no call in it"),
        (b"[1" + b"0" * 5000 + b"]", "is no JSON"),
    ],
)
def test_what_is_no_timeline_is_refused(tmp_path, data, message):
    path = tmp_path / "run.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        read_recording(path)


def test_files_that_are_missing_or_too_large(read, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"none.json: No such file.*such as run.json"):
        read_recording(tmp_path / "none.json")
    monkeypatch.setattr(timeline_file, "MAX_FILE_BYTES", 100)
    with pytest.raises(UsageError, match="expected 0 MB at most"):
        read(event())


def test_a_timeline_without_calls_to_replay(read):
    with pytest.raises(UsageError, match="rank 0 has no call that can be replayed"):
        read(event("close", dtype=None, reduction=None))


def test_a_gathered_piece_is_as_large_on_any_number_of_ranks():
    assert task_of(Kind("allgather", "int8", None, 10), 1, 4).send_count == 10
    assert task_of(Kind("reduce_scatter", "int8", "sum", 40), 1, 4).recv_count == 10
    assert task_of(Kind("scatter", "uint8", None, 40), 1, 4).recv_count == 10
    assert task_of(Kind("allreduce", "int16", "max", 40), 1, 4).send_count == 20


KINDS = [
    *(Kind(op, "float32", "mean", 400) for op in ("allreduce", "allreduce_many", "reduce")),
    *(Kind(op, "int16", None, 120) for op in ("bcast", "allgather", "gather", "alltoall")),
    Kind("reduce_scatter", "bool", "or", 24),
    Kind("allreduce", "int32", "mean", 40),
    Kind("scatter", "uint8", None, 40),
    Kind("allreduce", "float32", "sum", 0),
    *(Kind(op, "uint8", None, 9) for op in ("allgather_object", "bcast_object", "barrier")),
]


def recording_of(kinds):
    calls = [RecordedCall(kind, 0.0, 2.0 * i, 500.0) for i, kind in enumerate(kinds)]
    return Recording("run.json", 0, 2, tuple(calls), 0)


def test_all_kinds_are_checked_and_replayed():
    recording = recording_of([*KINDS, KINDS[0]])
    with Communicator() as communicator:
        check_memory(KINDS, communicator)
        calls = make_calls(KINDS, communicator)
        assert why_wrong(calls, communicator) is None
        quick, slow = (play(recording, calls, communicator, gaps, 3, 0.0) for gaps in (0, 1))
        record = record_of(recording, quick, communicator)
    assert slow.timing.min_us > 500 * len(recording.calls)
    assert quick.timing.min_us < slow.timing.min_us
    assert (record["calls"], record["gaps"], record["rounds"]) == (len(KINDS) + 1, False, 3)
    assert record["by_op"]["allreduce"]["calls"] == 4
    assert record["by_op"]["allreduce"]["bytes"] == 400 + 40 + 0 + 400


def test_wrong_answers_are_named():
    right = Communicator.allreduce
    wrong = patch.object(Communicator, "allreduce", lambda *a, **k: right(*a, **k) + 1)
    with Communicator() as communicator, wrong:
        said = why_wrong(make_calls(KINDS, communicator), communicator)
    assert said == "allreduce of 400 bytes of float32 is wrong on rank 0"


def test_figures_by_op():
    kinds = [KINDS[0], KINDS[0], KINDS[3]]
    playback = Playback(False, Timing((60.0,)), np.array([10.0, 20.0, 30.0]))
    assert playback.by_op(recording_of(kinds)) == {
        "allreduce": {
            "calls": 2,
            "bytes": 800,
            "median_us": 15,
            "total_us": 30,
            "recorded_median_us": 1,
            "recorded_total_us": 2,
        },
        "bcast": {
            "calls": 1,
            "bytes": 120,
            "median_us": 30,
            "total_us": 30,
            "recorded_median_us": 4,
            "recorded_total_us": 4,
        },
    }


def test_calls_of_a_dtype_share_memory(monkeypatch):
    monkeypatch.setattr(node_memory, "available_bytes", lambda: 2 * 10_000)
    many = [Kind("allreduce", "int8", "sum", 5000 - i) for i in range(50)]
    with Communicator() as communicator:
        check_memory(many, communicator)
        with pytest.raises(UsageError, match="the largest of which is allreduce of 5001 bytes"):
            check_memory([*many, Kind("allreduce", "int8", "sum", 5001)], communicator)
        with pytest.raises(UsageError, match=r"0\.00 GB for each of its 1 ranks"):
            check_memory([*many, Kind("bcast_object", "uint8", None, 1)], communicator)
