"""One program on the ranks of one mpirun, from launch to the end of its last process."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching import processes, rank
from mpistrat.testing.launching.mpirun import find_launcher

__all__ = ["RankOutput", "RunningJob"]

_DUMP_S = 0.05  # between looks whether stacks were written, and before the first: it takes a while


@dataclass(frozen=True)
class RankOutput:
    """What one rank wrote."""

    stdout: str = ""
    stderr: str = ""

    @property
    def text(self) -> str:
        """Both streams as one text, stdout first."""
        return self.stdout + self.stderr


class RunningJob:
    """A program on `ranks` ranks under mpirun; ended, with all it started, by :meth:`close`.

    Parameters
    ----------
    argv
        What would stand after ``python``: a script, ``-m module`` or ``-c code``, and arguments.
    ranks
        Number of ranks.
    env
        Environment variables to set on top of this process's own.
    cwd
        Working directory; default: this process's.
    options
        Further options of mpirun.
    """

    def __init__(
        self,
        argv: Sequence[str],
        ranks: int,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        launcher = find_launcher()
        self.ranks = ranks
        self.folder = Path(tempfile.mkdtemp(prefix="mpistrat-job-"))
        self._alive = (self.folder / rank.ALIVE_FILE).open("wb")
        # Before the ranks start: each waits for this lock in a thread, and ends itself when it
        # gets it. The kernel gives the lock back whatever ends this process.
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._token, mark = processes.new_token()
        # Unbuffered: what a rank printed before it hung or was killed has to be in its file.
        marks = {processes.TOKEN_VARIABLE: mark, "PYTHONUNBUFFERED": "1"}
        with (self.folder / "mpirun.out").open("wb") as output:
            program = [sys.executable, rank.__file__, str(self.folder), *argv]
            self._mpirun = subprocess.Popen(
                [*launcher.command(ranks, options), *program],
                # mpirun forwards its input to rank 0, and would read pytest's terminal.
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=launcher.environment() | dict(env or {}) | marks,
                cwd=cwd,
                # Ctrl-C in the terminal reaches pytest alone, which ends the job.
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return mpirun's exit status, or None while it runs."""
        return self._mpirun.poll()

    def wait(self, timeout_s: float) -> bool:
        """Wait for mpirun to end, at most `timeout_s` seconds; return whether it did."""
        try:
            self._mpirun.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def pids(self) -> dict[int, int]:
        """Return the process id of every rank that has started, by rank."""
        files = ((i, self.folder / f"rank{i}.pid") for i in range(self.ranks))
        # A rank may have opened its file and not yet written to it.
        return {i: int(text) for i, file in files if file.exists() and (text := file.read_text())}

    def output_sizes(self) -> tuple[tuple[int, int], ...]:
        """Return how many bytes each rank has written to stdout and stderr."""
        files = (self._files(i) for i in range(self.ranks))
        return tuple((_size(out), _size(err)) for out, err in files)

    def outputs(self, since: Sequence[tuple[int, int]] | None = None) -> tuple[RankOutput, ...]:
        """Return what each rank wrote after an earlier :meth:`output_sizes`, by default all."""
        starts = since or [(0, 0)] * self.ranks
        return tuple(
            RankOutput(*map(_text, self._files(i), start)) for i, start in enumerate(starts)
        )

    def wait_for(
        self, word: str, ranks: Iterable[int] | None = None, timeout_s: float = 40.0
    ) -> list[str]:
        """Wait for a line with `word` on the stdout of each of `ranks`, by default of all.

        Lines count once they are whole: ``print(1, 2)`` writes its arguments one by one.

        Returns
        -------
        list of str
            The first such line of each.

        Raises
        ------
        TimeoutError
            One has written none after `timeout_s` seconds, or when mpirun ended. It says who, and
            what all have written.
        """
        wanted = list(range(self.ranks) if ranks is None else ranks)
        found: dict[int, str] = {}

        def is_over() -> bool:
            has_ended = self.poll() is not None  # asked first: then the output below is all of it
            outputs = self.outputs()
            lines = {rank: _line_with(word, outputs[rank].stdout) for rank in wanted}
            found.update({rank: line for rank, line in lines.items() if line is not None})
            return has_ended or len(found) == len(lines)

        is_in_time = wait_until(is_over, timeout_s, 0.02)
        missing = [rank for rank in wanted if rank not in found]
        if missing:
            raise TimeoutError(
                f"no line with {word!r} of ranks {missing}"
                f" {'until mpirun ended' if is_in_time else f'in {timeout_s:g} s'}; got"
                f" {[one.text for one in self.outputs()]}, and of mpirun: {self.launcher_output()}"
            )
        return [found[rank] for rank in wanted]

    def launcher_output(self) -> str:
        """Return what mpirun itself wrote."""
        return _text(self.folder / "mpirun.out", 0)

    def _files(self, index: int) -> tuple[Path, Path]:
        return self.folder / f"rank{index}.out", self.folder / f"rank{index}.err"

    def dump_stacks(self, patience_s: float = 1.0) -> None:
        """Make every live rank write its Python stacks to its stderr."""
        before = self.output_sizes()
        pids = self.pids()
        # Nothing comes of a rank that has ended, and the wait below would last to its end.
        alive = {i: pid for i, pid in pids.items() if processes.is_alive(pid)}
        processes.send(alive.values(), signal.SIGUSR1, self._token)

        def has_come() -> bool:
            now = self.output_sizes()
            return all(now[i][1] > before[i][1] for i in alive)

        time.sleep(_DUMP_S)
        wait_until(has_come, patience_s, _DUMP_S)

    def end(self, grace_s: float = 2.0) -> None:
        """End mpirun, the ranks and whatever they started; return when they are gone."""
        # mpirun with its ranks: one that is killed alone may leave them behind.
        processes.end_all(self._token, [self._mpirun.pid, *self.pids().values()], grace_s)
        # Reaps mpirun, which is this process's child.
        self.wait(5.0)

    def close(self) -> None:
        """End the job if it still runs and remove its files (idempotent)."""
        if not self._alive.closed:
            self.end()
            # After the end, so that ranks end by SIGTERM and not by the lock's SIGKILL.
            self._alive.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def _line_with(word: str, text: str) -> str | None:
    lines = text.splitlines(keepends=True)
    return next((line[:-1] for line in lines if word in line and line.endswith("\n")), None)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _text(file: Path, start: int) -> str:
    return file.read_bytes()[start:].decode(errors="replace") if file.exists() else ""
