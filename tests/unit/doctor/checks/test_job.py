"""The checks of limits and of the job's end judge recorded facts."""

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.job import resource_limits, time_limit
from mpistrat.doctor.checks.job.resource_limits import Limits
from mpistrat.doctor.checks.job.time_limit import JobEnd, signal_of
from mpistrat.doctor.job.srun_processes import has_option

WELL = Limits(locked=-1, files=4096, files_at_most=4096, core=0)


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"locked": 64 << 10, "needs_locked": True}, Status.FAILURE, ["64 KiB", "ulimit -l"]),
        ({"files": 256}, Status.WARNING, ["256 files", "ulimit -n 1024"]),
        ({"files": 256, "files_at_most": 256}, Status.WARNING, ["256 files"]),
        ({"core": -1}, Status.WARNING, ["any size", "ulimit -c 0"]),
        ({"memory": 1 << 30, "asked": 2 << 30}, Status.WARNING, ["1024 MiB", "2048 MiB"]),
    ],
)
def test_limits(changed, status, words):
    bad = Limits(**{**vars(WELL), **changed})
    verdict = judged(resource_limits.CHECK, [WELL, bad], job())
    assert has_fault(verdict, status, "rank 1 on n0", *words)
    assert len(verdict.problems) == 1


def test_limits_that_are_well():
    little_to_lock = Limits(**{**vars(WELL), "locked": 64 << 10})  # without InfiniBand
    assert faults(judged(resource_limits.CHECK, [WELL, little_to_lock], job())) == []


def test_slurm_need_not_pass_a_limit_on():
    bad = Limits(**{**vars(WELL), "core": -1})
    verdict = judged(resource_limits.CHECK, [bad] * 2, job(kind="srun", mpi_type="pmi2"))
    expected = (
        "ulimit -c 0; srun --mpi=pmi2 --propagate=CORE,NOFILE,STACK -N 1 -n 2 mpistrat doctor"
    )
    assert verdict.problems[0].command == expected


# --------------------------------------------------------------------------------- end of the job

CONFIGURATION = (("KillWait", "30 sec"), ("KillOnBadExit", "0"), ("JobRequeue", "1"))


def end(**facts):
    own = {"configuration": CONFIGURATION, "kills_on_bad_exit": True, **facts}
    return judged(time_limit.CHECK, {0: JobEnd(**own)}, job(kind="srun", mpi_type="pmi2"))


@pytest.mark.parametrize(
    "facts",
    [
        {"signal": "USR1@300"},
        {"signal": "B:USR1@300", "save_s": 100.0},
        {"signal": ""},
        {"kills_on_bad_exit": None},
        {"kills_on_bad_exit": False, "configuration": (("KillOnBadExit", "1"),)},
    ],
)
def test_ends_that_are_well(facts):
    assert faults(end(**facts)) == []


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"signal": "USR1@30"}, "#SBATCH --signal=USR1@300"),
        ({"signal": "USR1"}, "#SBATCH --signal=USR1@300"),
        ({"signal": "B:TERM@300", "save_s": 200.0}, "#SBATCH --signal=B:TERM@460"),
        ({"save_s": 10.0, "ends_in_s": 600.0}, "#SBATCH --signal=USR1@300"),
    ],
)
def test_a_signal_that_comes_too_late(facts, line):
    verdict = end(**facts)
    assert has_fault(verdict, Status.WARNING, "signal")
    assert verdict.problems[0].command == line


def test_a_crash_that_does_not_end_the_job():
    verdict = end(kills_on_bad_exit=False)
    assert has_fault(verdict, Status.WARNING, "KillOnBadExit=0")
    line = "srun --mpi=pmi2 --kill-on-bad-exit=1 -N 1 -n 2 mpistrat doctor"
    assert verdict.problems[0].command == line
    facts = {0: JobEnd(CONFIGURATION, kills_on_bad_exit=False)}
    assert faults(judged(time_limit.CHECK, facts, job(["n0"], "srun"))) == []  # nobody would wait


def test_the_signal_of_a_script():
    script = "#!/bin/bash\n#SBATCH --time=1 --signal=USR2@100\n#SBATCH --signal='B:USR1@120' # x\n"
    assert signal_of(script, {}) == "B:USR1@120"
    assert signal_of("#!/bin/bash\n", {"SBATCH_SIGNAL": "TERM@90"}) == "TERM@90"


@pytest.mark.parametrize(
    ("words", "kills"),
    [
        ("srun -K ./a", True),
        ("srun --kill-on-bad-exit=1 ./a", True),
        ("srun -K --kill-on-bad-exit=0 ./a", False),
        ("srun -K0 ./a", False),
        ("srun ./a", False),
    ],
)
def test_the_option_of_srun(words, kills):
    assert has_option(words.split()) is kills
