"""The timeline: valid JSON at any time, in Chrome's trace format, and one file from many."""

import fcntl
import json
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpistrat.collectives.checking.fingerprint import Signature as Call
from mpistrat.collectives.health.call_record import CallRecord, kind_of
from mpistrat.collectives.health.recorder import PythonRing, Recorder
from mpistrat.collectives.health.timeline import Timeline
from mpistrat.errors import UsageError

SECOND = 10**9


def check(path):
    """The file is what chrome://tracing and Perfetto read; returns its events of calls."""
    events = json.loads(path.read_text())
    assert isinstance(events, list)
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) and event[key] >= 0 for key in ("pid", "tid"))
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        else:
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert set(event["args"]) == {
                *("sequence", "bytes", "dtype", "reduction", "label", "state", "communicator")
            }
    return [event for event in events if event["ph"] == "X"]


@pytest.fixture
def calls():
    """Return a recorder and a function that makes calls of it."""
    recorder = Recorder(0, 1)

    def make(count, is_ended=True):
        for _ in range(count):
            made = recorder.ring.count + 1
            recorder.begin(made, kind_of(Call("barrier"), "why"), None)
            if is_ended:
                recorder.end(is_done=True)

    return recorder, make


def test_events(tmp_path):
    timeline = Timeline(str(tmp_path / "t.json"), 0, 1, "host", SECOND)
    recorder = Recorder(3, 4)
    timeline.follow(recorder)
    done = CallRecord(1, "allreduce", "sum", "int8", 9, "x", SECOND, SECOND + 1500, "done")
    timeline.add(done, recorder)
    timeline.flush()
    events = json.loads((tmp_path / "t.json").read_text())
    assert [event["name"] for event in events] == ["process_name", "thread_name", "allreduce"]
    assert events[0]["args"] == {"name": "host"}
    assert events[1]["args"] == {"name": "rank 3"}
    call = events[2]
    assert (call["ph"], call["ts"], call["dur"], call["tid"]) == ("X", 2e6, 1.5, 3)
    assert call["args"]["bytes"] == 9
    assert call["args"]["reduction"] == "sum"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"MPISTRAT_TIMELINE='.*none/t.json': cannot be written"):
        Timeline(str(tmp_path / "none" / "t.json"), 0, 1, "host", 0)


def test_the_file_is_valid_at_any_time(tmp_path, calls):
    path = tmp_path / "t.json"
    timeline = Timeline(str(path), 0, 1, "host", 0)
    assert check(path) == []
    recorder, make = calls
    make(2)  # before it is followed
    timeline.follow(recorder)
    for i in range(4):
        timeline.flush()
        assert [event["args"]["sequence"] for event in check(path)] == list(range(3, 3 + i))
        make(1)
    make(1, is_ended=False)
    timeline.flush()
    assert check(path)[-1]["args"]["state"] == "done"
    timeline.finish(is_well=False)
    last = check(path)[-1]["args"]
    assert (last["sequence"], last["state"]) == (7, "under way")
    make(1)
    timeline.finish(is_well=True)
    assert check(path)[-1]["args"] == last


@pytest.mark.parametrize("has_kernels", [True, False])
def test_nothing_is_lost_when_the_ring_wraps(tmp_path, monkeypatch, has_kernels):
    monkeypatch.setenv("MPISTRAT_RECORDS", "16")
    path = tmp_path / "t.json"
    recorder = Recorder(0, 1)
    if not has_kernels:
        recorder.ring = PythonRing(16)
    timeline = Timeline(str(path), 0, 1, "host", 0)
    timeline.follow(recorder)
    for i in range(10_000):
        recorder.begin(i, kind_of(Call("barrier"), None), None)
        recorder.end(is_done=True)
    timeline.finish(is_well=True)
    assert [event["args"]["sequence"] for event in check(path)] == list(range(10_000))


def test_parts_become_one_file(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("of an earlier run")
    timelines = [Timeline(str(path), rank, 8, "host", 0) for rank in range(8)]
    for rank, timeline in enumerate(timelines):
        recorder = Recorder(rank, 8)
        timeline.follow(recorder)
        for i in range(rank):  # none on rank 0
            recorder.begin(i, kind_of(Call("barrier"), None), None)
        timeline.flush()
        assert len(check(tmp_path / f"t.json.rank{rank}")) == max(0, rank - 1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda timeline: timeline.finish(is_well=True), timelines))
    assert sorted(event["tid"] for event in check(path)) == [r for r in range(8) for _ in range(r)]
    assert list(tmp_path.iterdir()) == [path]


def test_parts_stay_after_a_failure_and_with_rank_in_the_name(tmp_path):
    for rank in range(2):
        Timeline(str(tmp_path / "a.json"), rank, 2, "host", 0).finish(is_well=False)
        Timeline(str(tmp_path / "b{rank}.json"), rank, 2, "host", 0).finish(is_well=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.json.rank0", "a.json.rank1", "b0.json", "b1.json"]
    assert all(check(tmp_path / name) == [] for name in names)


def test_a_program_of_one_rank_writes_its_file_at_the_end(tmp_path):
    path = tmp_path / "t.json"
    program = (
        f"import os; os.environ['MPISTRAT_TIMELINE'] = {str(path)!r}\n"
        "from mpistrat import Communicator\n"
        "a, b = Communicator(), Communicator()\n"
        "a.allreduce(1.0); b.barrier()\n"
        "if os.fork() == 0: a.call_log.show_last_calls(); raise SystemExit\n"
        "os.wait()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    events = check(path)
    assert {event["args"]["communicator"] for event in events} == {0, 1}
    assert sorted(event["name"] for event in events if event["args"]["sequence"] > 1) == [
        "allreduce",
        "barrier",
    ]


def test_whoever_holds_the_file_of_the_job_is_not_waited_for_forever(
    tmp_path, monkeypatch, calls, capsys
):
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.1")
    target = tmp_path / "t.json"
    timeline = Timeline(str(target), 1, 2, "host", 0)
    recorder, make = calls
    timeline.follow(recorder)
    make(3)
    with target.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timeline.finish(is_well=True)
    assert len(check(tmp_path / "t.json.rank1")) == 3
    assert "the timeline stays in" in capsys.readouterr().err
    assert target.read_text() == ""


@pytest.fixture
def limited():
    """Return a function that lets no file grow beyond some bytes, as on a full disk."""
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda nbytes: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_timeline_and_no_call(tmp_path, calls, capsys, limited):
    path = tmp_path / "t.json"
    timeline = Timeline(str(path), 0, 1, "host", 0)
    recorder, make = calls
    timeline.follow(recorder)
    make(10)
    timeline.flush()
    limited(path.stat().st_size + 100)
    make(20_000)
    timeline.finish(is_well=True)
    assert len(check(path)) == 10
    assert capsys.readouterr().err.count("the timeline ends here") == 1


def test_a_folder_that_is_gone_ends_the_timeline_and_no_call(tmp_path, calls, capsys):
    folder = tmp_path / "gone"
    folder.mkdir()
    timeline = Timeline(str(folder / "t.json"), 0, 1, "host", 0)
    recorder, make = calls
    timeline.follow(recorder)
    shutil.rmtree(folder)
    make(20_000)
    timeline.finish(is_well=True)
    assert "No such file" in capsys.readouterr().err
