"""Start the daemons of a Slurm, munged, slurmctld and a slurmd a node, and wait for them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from helpers.free_port import free_port
from helpers.slurm.configuration import NODES, write_configuration
from helpers.slurm.programs import SlurmError, run, start_daemon
from mpistrat.system.waiting import wait_until
from mpistrat.testing.placement import slower

__all__ = ["Daemons"]

_COMMAND_S = 20.0
_START_S = 30.0
_LOG_LINES = 40


class Daemons:
    """The daemons of one Slurm.

    Parameters
    ----------
    folder
        Of its configuration, state and logs; it is empty before `start`.
    environment
        The variables of the daemons, SLURM_CONF among them.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def start(self) -> None:
        """Start the daemons, and wait until all nodes are idle.

        Raises
        ------
        SlurmError
            A daemon ended, or the nodes were not idle in time; with the daemons' logs.
        """
        write_configuration(self._folder, free_port(), [free_port() for _ in NODES])
        self._start_munge()
        controller = self._start("slurmctld", "slurmctld", "-D", "-c")
        self._await(controller, self._is_answering)
        for node in NODES:
            self._start(f"slurmd.{node}", "slurmd", "-D", "-N", node)
        self._await(controller, self.are_idle)

    def _start_munge(self) -> None:
        """Start a munged of its own, so that one of the system is neither needed nor disturbed."""
        key, socket = self._folder / "munge.key", self._folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = [
            f"--{name}={self._folder / file}"
            for name, file in (("pid-file", "munged.pid"), ("seed-file", "munge.seed"))
        ]
        places = [f"--key-file={key}", f"--socket={socket}", *files]
        self._await(self._start("munged", "munged", "-F", "--force", *places), socket.exists)

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        return start_daemon(command, self._environment, self._folder / f"{name}.out")

    def _await(self, daemon: subprocess.Popen[bytes], test: Callable[[], bool]) -> None:
        """Wait until `test` holds, or `daemon` has ended."""
        if wait_until(lambda: test() or daemon.poll() is not None, _START_S * slower(), 0.05):
            if daemon.poll() is None:
                return
            raise SlurmError(f"{daemon.args!r} ended while Slurm started:\n{self.logs()}")
        nodes = self._ask("sinfo", "--long", "--Node")
        raise SlurmError(
            f"{test.__name__} is not true {_START_S:g} s after the start of Slurm:\n"
            f"{nodes.stdout}{nodes.stderr}{self.logs()}"
        )

    def _is_answering(self) -> bool:
        return self._ask("scontrol", "ping").returncode == 0

    def are_idle(self) -> bool:
        """Tell whether all nodes are free for a job."""
        found = self._ask("sinfo", "--noheader", "--states=idle", "-p", "main", "--format=%D")
        return found.stdout.strip() == str(len(NODES))

    def _ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        return run(
            command, environment=self._environment, timeout_s=_COMMAND_S, is_to_succeed=False
        )

    def logs(self) -> str:
        """Return the last lines of each daemon's log, or of its output where it has no log."""
        parts = []
        for output in sorted(self._folder.glob("*.out")):
            log = output.with_suffix(".log")
            file = log if log.exists() else output
            lines = file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            parts.append("\n".join([f"--- {file.name}", *lines]))
        return "\n".join(parts)
