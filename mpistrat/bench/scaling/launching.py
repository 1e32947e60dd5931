"""Build the command that starts the ranks of a run within the job's allocation."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat.errors import UsageError
from mpistrat.sites.mpi_probe import probe
from mpistrat.testing.launching.mpirun import find_launcher

__all__ = ["Start", "find_start"]

_NAMES = ("ranks", "nodes", "per_node")
_SRUN = ("srun", "--exact", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}")
_ENDS = "--kill-on-bad-exit=1"  # a rank that fails ends the step: others would wait


@dataclass(frozen=True)
class Start:
    """How ranks are started.

    Attributes
    ----------
    words
        The launcher and its options, with ``{ranks}``, ``{nodes}`` and ``{per_node}`` for the
        numbers.
    environment
        Of the launcher.
    """

    words: tuple[str, ...]
    environment: dict[str, str]

    def command(self, ranks: int, nodes: int, program: Sequence[str]) -> list[str]:
        """Return the command line that runs a program of Python's on so many ranks."""
        values = {"ranks": ranks, "nodes": nodes, "per_node": -(-ranks // nodes)}
        words = [_filled(word, values) for word in self.words]
        return [*words, sys.executable, *program]


def find_start(launch: str | None) -> Start:
    """Return how ranks start here: as the user says, else by srun in a Slurm job, or by mpirun.

    Raises
    ------
    UsageError
        The user's words are none, or do not say how many ranks there are.
    ClusterError
        There is no mpirun.
    """
    if launch is not None:
        return Start(_parsed(launch), dict(os.environ))
    if "SLURM_JOB_ID" in os.environ and shutil.which("srun"):
        found = probe(sys.executable)
        if found.launcher != "mpirun":
            of_type = (f"--mpi={found.type}",) if found.type else ()
            return Start((*_SRUN, _ENDS, *of_type), dict(os.environ))
        flags = [flag.replace("tasks_per_node", "per_node") for flag in found.flags]
        placed = shlex.split(" ".join(flags))
    else:
        placed = []
    mpirun = find_launcher()
    *words, _ = mpirun.command(1, placed)
    return Start((*words, "{ranks}"), mpirun.environment())


def _parsed(launch: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(launch))
    except ValueError as error:
        raise UsageError(f"--launch {launch!r}: {error}; expected words of a shell") from error
    if not any("{ranks}" in word for word in words):
        raise UsageError(
            f"--launch {launch!r}: expected {{ranks}} where the number of ranks belongs, as in"
            ' "srun -N {nodes} -n {ranks}"'
        )
    return words


def _filled(word: str, values: dict[str, int]) -> str:
    for name in _NAMES:
        word = word.replace(f"{{{name}}}", str(values[name]))
    return word
