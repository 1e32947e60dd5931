"""Start a Slurm of four nodes in a temporary folder, use it by its own commands, and end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helpers.slurm.configuration import NODES
from helpers.slurm.daemons import Daemons
from helpers.slurm.jobs import Job
from helpers.slurm.programs import SlurmError, run
from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching.processes import TOKEN_VARIABLE, end_all, new_token
from mpistrat.testing.placement import slower

__all__ = ["SlurmCluster", "running_cluster"]

_COMMAND_S = 20.0
_STARTS = 3  # a port can be taken between the look at it and its use
_OTHER_JOB = ("SLURM", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_")


class SlurmCluster:
    """A running Slurm. Made by `running_cluster`.

    Attributes
    ----------
    folder
        Of its configuration, state and logs.
    environment
        The variables with which its commands are run, SLURM_CONF among them.
    daemons
        What runs it.
    nodes
        The names of its nodes.
    """

    nodes = NODES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._token, mark = new_token()
        kept = {name: v for name, v in os.environ.items() if not name.startswith(_OTHER_JOB)}
        self.environment = {
            **kept,
            "SLURM_CONF": str(folder / "slurm.conf"),
            TOKEN_VARIABLE: mark,
        }
        self.daemons = Daemons(folder, self.environment)

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = _COMMAND_S,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        is_to_succeed: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run any command with this cluster's environment, and `environment` on top.

        Raises
        ------
        SlurmError
            It did not end in time, or failed (unless ``is_to_succeed=False``).
        """
        return run(
            command,
            environment=self.environment | dict(environment or {}),
            timeout_s=timeout_s * slower(),
            folder=folder,
            is_to_succeed=is_to_succeed,
        )

    def srun(
        self,
        *arguments: str,
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        is_to_succeed: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``srun ARGUMENTS`` in an allocation of its own; see `run`."""
        return self.run(
            ["srun", *arguments],
            timeout_s=timeout_s,
            environment=environment,
            folder=folder,
            is_to_succeed=is_to_succeed,
        )

    def sbatch(
        self,
        script: str | Path,
        *options: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit a batch script, its text or its file.

        Parameters
        ----------
        script
            A file, or a text, which is written to ``folder/job.sh``.
        options
            Of sbatch, before the file.
        folder
            Where it is submitted, runs, and writes ``%j.out``, unless it has its own --output.
        environment
            Variables on top of the cluster's.
        """
        if isinstance(script, str):
            text, script = script, folder / "job.sh"
            script.write_text(text)
        command = ["sbatch", "--parsable", *options, str(script)]
        answer = self.run(command, environment=environment, folder=folder).stdout
        return self.job(answer.strip().partition(";")[0])

    def job(self, number: str) -> Job:
        """Return the job of a number, also ``7_2`` for task 2 of the array 7."""
        return Job(self.run, number)

    def cancel_all(self, timeout_s: float = 30.0) -> None:
        """Cancel every job, and wait until all nodes are free."""
        self.run(["scancel", "--state=PENDING"], is_to_succeed=False)
        self.run(["scancel", "--me"], is_to_succeed=False)
        if not wait_until(self._is_empty, timeout_s * slower(), 0.1):
            raise SlurmError(
                f"jobs still run {timeout_s:g} s after scancel:\n{self.run(['squeue']).stdout}"
            )

    def _is_empty(self) -> bool:
        has_no_job = not self.run(["squeue", "--noheader"]).stdout.strip()
        return has_no_job and self.daemons.are_idle()

    def logs(self) -> str:
        """Return the last lines of each daemon's log."""
        return self.daemons.logs()

    def stop(self) -> None:
        """End the jobs and the daemons, and remove the folder."""
        with contextlib.suppress(SlurmError):
            self.run(["scancel", "--me"], is_to_succeed=False)
        end_all(self._token)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running_cluster() -> Iterator[SlurmCluster]:
    """Start a Slurm; end it, its jobs, and all processes of theirs at the end.

    Raises
    ------
    SlurmError
        It did not start, three times.
    """
    for left in reversed(range(_STARTS)):
        # In /tmp, since the name of a socket has 107 characters at most.
        cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp")))
        cluster.folder.chmod(0o755)  # munged refuses a socket that not all can reach
        try:
            cluster.daemons.start()
        except BaseException as error:
            cluster.stop()
            if left and isinstance(error, SlurmError):
                continue
            raise
        break
    try:
        yield cluster
    finally:
        cluster.stop()
