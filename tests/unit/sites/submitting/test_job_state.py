"""A job's state is read from Slurm's output, whatever the job is called."""

from pathlib import Path

import pytest

from mpistrat.sites.submitting import job_state
from mpistrat.sites.submitting.follow import end_of, exit_code, with_forgotten
from mpistrat.sites.submitting.job_state import Record
from mpistrat.sites.submitting.output import Tail
from mpistrat.sites.submitting.progress_line import ProgressLine, described
from mpistrat.sites.submitting.slurm_commands import environment, overriding

SHOWN = """\
JobId=8 ArrayJobId=8 ArrayTaskId=1 JobName=a JobState=COMPLETED Reason=None ExitCode=9:9
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=3:0
   RunTime=1-00:00:03 TimeLimit=2-00:00:00 TimeMin=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[0-1]
   StdErr=/a b/x-8.out
   StdOut=/a b/x-8.out
"""


def test_a_record():
    assert job_state._record(SHOWN) == Record(
        state="FAILED",
        reason="NonZeroExitCode",
        exit_code=(3, 0),
        nodes="n[0-1]",
        run_s=86403,
        limit_s=172800,
        output=Path("/a b/x-8.out"),
        restarts=2,
        index="1",
    )
    waiting = SHOWN.replace(
        "JobState=FAILED Reason=NonZeroExitCode", "JobState=PENDING Reason=None"
    )
    waiting = waiting.replace("NodeList=n[0-1]", "NodeList=").replace("2-00:00:00", "UNLIMITED")
    record = job_state._record(waiting)
    assert (record.state, record.reason, record.nodes, record.limit_s) == ("PENDING", "", "", None)
    assert not record.has_ended


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (Record("COMPLETED"), 0),
        (Record("FAILED", exit_code=(3, 0)), 3),
        (Record("FAILED", exit_code=(0, 9)), 137),
        (Record("TIMEOUT"), 1),
        (Record("CANCELLED", exit_code=(0, 15)), 143),
        (Record("NODE_FAIL"), 1),
    ],
)
def test_the_exit_code_is_the_jobs(record, code):
    assert record.has_ended
    assert exit_code([record]) == code
    assert exit_code([Record("COMPLETED"), record]) == code


def test_how_it_ended_is_said(tmp_path):
    for name in ("a.out", "b.out"):
        (tmp_path / name).touch()
    good = [Record("COMPLETED", output=tmp_path / "a.out", index=str(i)) for i in range(2)]
    assert end_of("7", good[:1]) == f"job 7: COMPLETED; output in {tmp_path}/a.out"
    assert end_of("7", good) == f"job 7: COMPLETED; output in {tmp_path} (2 files)"
    bad = Record("TIMEOUT", "TimeLimit", (0, 0), output=tmp_path / "b.out", index="3")
    said = f"job 7_3: TIMEOUT (TimeLimit), exit code 1; output in {tmp_path}/b.out"
    assert end_of("7", [*good, bad]) == said


def test_an_output_that_is_not_there_is_told(tmp_path):
    none = tmp_path / "none.out"
    cancelled = Record("CANCELLED", output=none)
    said = f"job 7: CANCELLED, exit code 1; there is no output ({none})"
    assert end_of("7", [cancelled]) == said
    done = Record("COMPLETED", output=none)
    assert end_of("7", [done]) == f"job 7: COMPLETED; there is no output ({none})"
    (tmp_path / "a.out").touch()
    both = [done, Record("COMPLETED", output=tmp_path / "a.out")]
    assert end_of("7", both) == f"job 7: COMPLETED; output in {tmp_path}/a.out"
    unknown = end_of("7", [Record("FAILED", exit_code=(3, 0))])  # of accounting
    assert unknown == "job 7: FAILED, exit code 3; Slurm does not say where its output is"


def test_the_state_is_described():
    assert described([Record("PENDING", "Resources")]) == "PENDING (Resources)"
    running = Record("RUNNING", nodes="n0", restarts=1)
    assert described([running]) == "RUNNING on n0, started again 1 x"
    assert described([running, running, Record("PENDING")]) == "1 PENDING, 2 RUNNING"


@pytest.mark.parametrize(
    ("index", "jobs"),
    [("2-9%2", 8), ("1,3,5-7", 5), ("0-9:3", 4), ("4", 1), ("", 1), ("1,3,5,7%1", 4)],
)
def test_jobs_of_an_array_that_wait_are_counted(index, jobs):
    waiting, running = Record("PENDING", index=index), Record("RUNNING", index="0")
    assert described([running, waiting]) == f"{jobs} PENDING, 1 RUNNING"
    assert described([waiting]) == (f"{jobs} PENDING" if jobs > 1 else "PENDING")


def test_a_job_that_never_starts_is_told(capsys):
    line = ProgressLine("7")
    line.show([Record("PENDING", "DependencyNeverSatisfied")])
    said = "job 7: PENDING (DependencyNeverSatisfied); it never starts: `scancel 7` ends it\n"
    assert capsys.readouterr().err == said
    line.show([Record("PENDING", "Dependency")])
    assert capsys.readouterr().err == "job 7: PENDING (Dependency)\n"


def test_output_is_read_as_it_grows(tmp_path):
    file = tmp_path / "out"
    tail = Tail(file)
    assert tail.lines() == []
    file.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    with file.open("ab") as more:
        more.write(b"o\n\xff\n")
    assert tail.lines() == ["two", "\ufffd"]
    file.write_bytes(b"new")  # begun anew, as without --open-mode=append
    assert tail.lines() == []
    assert tail.rest() == ["new"]
    assert tail.rest() == []


def test_a_job_gets_no_variables_of_another_one():
    kept = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n0", "SLURM_CPUS_PER_TASK": "2"}
    assert environment(kept | job) == kept
    assert overriding({"SBATCH_PARTITION": "x", "PATH": ""}) == ["SBATCH_PARTITION"]


def test_jobs_of_an_array_that_slurm_has_forgotten_count():
    failed = Record("FAILED", exit_code=(3, 0), index="0")
    before = [failed, Record("RUNNING", index="1"), Record("PENDING", index="2-9")]
    now = with_forgotten([Record("COMPLETED", index="1")], before)
    assert {record.index for record in now} == {"0", "1"}
    assert exit_code(now) == 3
    again = Record("PENDING", index="0")  # it is started again
    assert with_forgotten([again], [failed]) == [again]
