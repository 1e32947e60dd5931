"""Set up one rank, then run a program on it: ``python rank.py folder program ...``.

It sends the rank's stdout and stderr to files of its own, notes the process id, makes SIGUSR1
write every thread's Python stack, and sees to it that the rank ends when the process that launched
the job does. Then it runs the program in this very process, as the interpreter would. It is run as
a file and imports the standard library alone, so the program starts as if it were the first.
"""

from __future__ import annotations

import _thread
import faulthandler
import fcntl
import os
import runpy
import signal
import sys
import types
from pathlib import Path

__all__ = ["ALIVE_FILE", "main", "rank_from_environment"]

ALIVE_FILE = "alive"
"""The file that the launching process keeps locked for as long as it lives."""

_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def rank_from_environment() -> int:
    """Return this process's rank as its launcher announced it; 0 without a launcher."""
    for name in _RANK_VARIABLES:
        if name in os.environ:
            return int(os.environ[name])
    return 0


def _redirect(folder: Path, rank: int) -> None:
    """Point file descriptors 1 and 2, and so C code and child processes too, at files."""
    for descriptor, suffix in ((1, "out"), (2, "err")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        target = os.open(folder / f"rank{rank}.{suffix}", flags, 0o600)
        os.dup2(target, descriptor)
        os.close(target)


def _end_with_launcher(alive: int) -> None:
    """Kill this process as soon as the launching process lets go of its lock, or dies."""
    fcntl.flock(alive, fcntl.LOCK_SH)  # sleeps in the kernel: it costs the program nothing
    os.kill(os.getpid(), signal.SIGKILL)


def _run(argv: list[str]) -> None:
    """Run what ``python *argv`` would run."""
    # The interpreter has put this file's folder there, from which the program could import.
    sys.path[0] = str(Path.cwd())
    if argv[0] == "-m":
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        # As under `python -c`, where all that the program defines belongs to `__main__`.
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(argv[1], "<string>", "exec"), program.__dict__)
    else:
        sys.argv = argv
        sys.path[0] = str(Path(argv[0]).resolve().parent)
        runpy.run_path(argv[0], run_name="__main__")


def main(argv: list[str]) -> None:
    """Set up one rank and run a program on it.

    Parameters
    ----------
    argv
        The job's private folder, then the arguments that the program has after ``python``: a
        script, ``-m module`` or ``-c code``, and its own arguments.
    """
    folder, rank = Path(argv[0]), rank_from_environment()
    _redirect(folder, rank)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # Opened before others can know of this process: who then kills the launching process may
    # remove the folder at once. Not a threading.Thread: the program should see none but its own.
    alive = os.open(folder / ALIVE_FILE, os.O_RDONLY)
    _thread.start_new_thread(_end_with_launcher, (alive,))
    # After SIGUSR1 has its handler: `dump_stacks` signals ranks that have this file, and the
    # default action would end them.
    (folder / f"rank{rank}.pid").write_text(str(os.getpid()), encoding="ascii")
    _run(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
