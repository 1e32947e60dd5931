"""Run the checks on the ranks that this command was started with, and report on one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpistrat.cluster.launcher.launch_variables import expected_size
from mpistrat.cluster.mpi_start import timed_start
from mpistrat.cluster.report_once import NOT_WRITTEN, await_report, is_reporter, reporting
from mpistrat.cluster.topology import host_name
from mpistrat.doctor.check import Check
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.here import Here, Options
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.launcher import of_environment
from mpistrat.doctor.job.start import start_mpi
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.judging import judge
from mpistrat.doctor.measuring import Answer, exchange, measure
from mpistrat.doctor.start_mask import START_MASK
from mpistrat.errors import CommunicationTimeoutError
from mpistrat.system.program_end import standard_output

if TYPE_CHECKING:
    from mpistrat.sites.schema import Site

__all__ = ["Plan", "leave", "run"]

_HELLO, _FACTS, _GO, _EXCHANGED, _CODE = range(1, 6)
# Parts of the deadline of the whole command.
_START, _ANSWER, _MEASURED, _MESSAGE = 0.4, 0.1, 0.25, 0.1
_FINALIZE_S = 5.0
_APART_S = 10.0  # after so long rank 0 has reported, where the ranks cannot tell each other


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes
    ----------
    checks
        In the order of the report.
    options
        The user's.
    site
        Called on the rank that reports, for the site that the machine is compared with.
    report
        Called on the rank that reports; it returns whether all was written.
    program
        The command line without its launcher.
    """

    checks: Sequence[Check[Any]]
    options: Options
    site: Callable[[], Site | None]
    report: Callable[[Examination], bool]
    program: str


def run(plan: Plan) -> int:
    """Examine the job and report; return the exit code, the same on all ranks. **Collective.**"""
    begin = time.monotonic()
    environment = dict(os.environ)
    launcher = of_environment(environment, expected_size())
    limit_s = plan.options.deadline_s
    comm, mpi = start_mpi(launcher, environment, _START * limit_s)
    here = Here(environment, START_MASK, launcher, mpi, plan.options)
    if comm is not None and comm.size >= launcher.size:
        return _together(plan, here, TimedComm(comm, _MESSAGE * limit_s), begin)
    if launcher.size > 1 and not is_reporter():
        await_report(environment, _APART_S)
        return 2
    with reporting(environment):
        return _alone(plan, here, begin)


def _alone(plan: Plan, here: Here, begin: float) -> int:
    """Examine this process only."""
    here = replace(here, hosts=(host_name(),), site=plan.site())
    answers = measure(plan.checks, here, is_first=True)
    is_one = here.launcher.size == 1
    refusal = "one rank" if is_one else "the ranks cannot reach each other"
    answers |= exchange(plan.checks, here, None, refusal)
    return _reported(plan, _job(plan, here, here.hosts, {}), {0: answers}, begin)


def leave(code: int, was_launched: bool) -> None:
    """End this process with an exit code, without waiting for ranks that do not answer."""
    if not was_launched:
        raise SystemExit(code)
    standard_output.wait_until_read()
    os._exit(code)


def _together(plan: Plan, here: Here, comm: TimedComm, begin: float) -> int:
    """Examine a job whose ranks reach each other. **Collective.**"""
    limit_s = plan.options.deadline_s
    hosts = comm.gather(host_name(), _HELLO, _ANSWER * limit_s)
    # Each rank needs to know which is the first of its node, before it measures.
    known = [hosts.get(rank, f"of rank {rank}") for rank in range(comm.size)]
    wait_s = (_ANSWER + _MEASURED) * limit_s
    known = comm.share(known, _HELLO, wait_s)
    is_first = known.index(known[comm.rank]) == comm.rank
    site = plan.site() if comm.rank == 0 else None
    here = replace(here, is_first_of_node=is_first, hosts=tuple(known), site=site)
    own = measure(plan.checks, here, comm.rank == 0)
    measured_s = max(_MEASURED * limit_s, here.options.measure_s)
    answers = comm.gather(own, _FACTS, measured_s)
    silent = comm.share(_silent(comm, hosts, answers), _GO, wait_s + measured_s)
    refusal = "one rank" if comm.size == 1 else ""
    if silent:
        refusal = "some ranks did not answer"
    exchanged = comm.gather(
        exchange(plan.checks, here, comm, refusal), _EXCHANGED, 2 * _MESSAGE * limit_s
    )
    if comm.rank == 0:
        silent = _silent(comm, hosts, exchanged)
        merged = {rank: given | exchanged.get(rank, {}) for rank, given in answers.items()}
        code = _reported(plan, _job(plan, here, known, silent), merged, begin)
    else:
        code = 2
    return _agreed(comm, code, bool(silent), limit_s)


def _silent(
    comm: TimedComm, hosts: Mapping[int, str], came: Mapping[int, object]
) -> dict[int, str]:
    """Return the ranks that did not answer, with their nodes; on rank 0."""
    if comm.rank != 0:
        return {}
    return {rank: hosts.get(rank, "") for rank in range(comm.size) if rank not in came}


def _job(plan: Plan, here: Here, hosts: Sequence[str], silent: Mapping[int, str]) -> Job:
    return Job(
        hosts=tuple(hosts),
        launcher=here.launcher,
        library=here.mpi.library,
        slurm=slurm.version(),
        site=here.site,
        program=plan.program,
        silent=dict(silent),
    )


def _reported(
    plan: Plan, job: Job, answers: Mapping[int, Mapping[str, Answer]], begin: float
) -> int:
    results, corrections = judge(plan.checks, answers, job)
    examination = Examination(job, results, corrections)
    examination = replace(examination, duration_s=time.monotonic() - begin)
    return examination.exit_code if plan.report(examination) else NOT_WRITTEN


def _agreed(comm: TimedComm, code: int, is_abandoned: bool, limit_s: float) -> int:
    """Return rank 0's exit code on all ranks, and end MPI; abort it where a rank is lost."""
    try:
        code = comm.share(code, _CODE, limit_s)
    except CommunicationTimeoutError:
        return 2  # rank 0 is lost: there is no report, and its own end says so
    comm.flush(_FINALIZE_S)
    if is_abandoned:
        standard_output.wait_until_read()
        timed_start.abort(code)
    timed_start.finish(_FINALIZE_S)
    return code
