"""Check the end of the job: a signal in time for a save, requeueing, the end after a crash."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, Where, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm, srun_processes
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job

__all__ = ["CHECK", "JobEnd", "judge", "signal_of"]

_LEAD_S = 60  # Slurm may send the signal so much earlier, and a step of training takes time


@dataclass(frozen=True)
class JobEnd:
    """What Slurm says about the end of this job.

    Attributes
    ----------
    configuration
        Of Slurm: KillWait, KillOnBadExit, JobRequeue, PreemptMode.
    ends_in_s
        Seconds until the time limit; None where there is none.
    signal
        The value of --signal in the batch script or the environment, "" where there is none.
    kills_on_bad_exit
        Whether the srun that started the ranks has --kill-on-bad-exit; None if it is not known.
    save_s
        Seconds that a checkpoint takes, as the user has said.
    may_requeue
        Whether this job may be started again.
    """

    configuration: tuple[tuple[str, str], ...]
    ends_in_s: float | None = None
    signal: str = ""
    kills_on_bad_exit: bool | None = None
    save_s: float | None = None
    may_requeue: bool = True


_NAMES = ("KillWait", "KillOnBadExit", "JobRequeue", "PreemptMode")


def _measure(here: Here) -> JobEnd:
    record, configuration = slurm.job_record(), slurm.configuration()
    script = slurm.batch_script()
    end = here.number("SLURM_JOB_END_TIME")
    ends_in_s = end - time.time() if end else _time_left(record)
    return JobEnd(
        configuration=tuple((name, configuration.get(name, "")) for name in _NAMES),
        ends_in_s=ends_in_s,
        signal=signal_of(script, here.environment),
        kills_on_bad_exit=srun_processes.kills_on_bad_exit(here.environment, script),
        save_s=here.options.save_s,
        may_requeue=record.get("Requeue", "1") == "1",
    )


def _time_left(record: Mapping[str, str]) -> float | None:
    try:
        end = time.strptime(record.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S")
    except ValueError:  # "Unknown": no limit
        return None
    return time.mktime(end) - time.time()


def signal_of(script: str, environment: Mapping[str, str]) -> str:
    """Return the value of --signal: of a script's last directive, else SBATCH_SIGNAL."""
    found = re.findall(r"^#SBATCH\s.*?--signal[= ](\S+)", script, re.MULTILINE)
    return shlex.split(found[-1])[0] if found else environment.get("SBATCH_SIGNAL", "")


def judge(facts: Mapping[int, JobEnd], job: Job) -> Verdict:
    """Compare the signal's lead with a save, and see that a crash ends the job."""
    end = facts[min(facts)]
    configuration = dict(end.configuration)
    problems = [*_of_signal(end, job), *_of_crash(end, configuration, job)]
    return Verdict(_value(end, configuration), problems=tuple(problems))


def _value(end: JobEnd, configuration: Mapping[str, str]) -> str:
    left = "no time limit" if end.ends_in_s is None else f"ends in {end.ends_in_s / 60:.0f} min"
    signal = f"--signal={end.signal}" if end.signal else "no --signal"
    again = "may be requeued" if end.may_requeue else "is not requeued"
    wait = configuration.get("KillWait", "").split(" ")[0]
    return ", ".join([left, signal, again, *([f"KillWait {wait} s"] if wait else [])])


def _of_signal(end: JobEnd, job: Job) -> Iterator[Problem]:
    lead = re.search(r"@(\d+)", end.signal)
    lead_s = int(lead[1]) if lead else 60 if end.signal else 0  # Slurm's default
    save_s = 2 * (end.save_s or 0)
    need_s = int(_LEAD_S + save_s)
    # The ranks of mpirun are no tasks of Slurm's: only the batch script can be told.
    usual = "USR1" if job.launcher.kind == "srun" else "B:USR1"
    name = re.sub(r"@\d+", "", end.signal) or usual
    line = f"#SBATCH --signal={name}@{max(300, need_s)}"
    if end.signal and (lead_s < need_s or (end.save_s is None and lead_s <= _LEAD_S)):
        saves = f"twice a save of {end.save_s:g} s and {_LEAD_S} s" if end.save_s else "a save"
        yield warning(
            f"--signal={end.signal}: the ranks get it {lead_s} s before the end",
            f"more than {need_s} s, for {saves}; Slurm counts in minutes, and a step has to end",
            "raise the time of the signal, or the job ends in the middle of its save",
            line,
        )
    elif not end.signal and end.save_s is not None and end.ends_in_s is not None:
        yield warning(
            "no --signal: the ranks are not told before the time limit",
            "a signal before the end, for PreemptionHandler",
            "add it to the script; until then only periodic checkpoints are left",
            line,
        )


def _of_crash(end: JobEnd, configuration: Mapping[str, str], job: Job) -> Iterator[Problem]:
    is_default = configuration.get("KillOnBadExit", "") == "1"
    has_others = job.launcher.kind == "srun" and job.size > 1
    if not has_others or is_default or end.kills_on_bad_exit is not False:
        return
    yield warning(
        "KillOnBadExit=0, and srun was started without --kill-on-bad-exit=1",
        "a job that ends when one of its ranks crashes",
        "the other ranks would wait until the time limit: add the option",
        srun_line(job, "--kill-on-bad-exit=1"),
    )


CHECK = Check(
    name="job.time_limit",
    title="end of the job",
    source="SchedMD/slurm, sbatch --signal; NVIDIA-NeMo/Automodel#3007",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
