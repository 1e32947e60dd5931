"""A job that stays up: `MpiJob` runs test functions on its ranks, one after the other.

A launch costs one to two seconds, a task some milliseconds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching.mpirun import LauncherError, find_launcher
from mpistrat.testing.launching.running_job import RankOutput, RunningJob
from mpistrat.testing.tasks import spool
from mpistrat.testing.tasks.spool import Outcome, Task
from mpistrat.testing.tasks.watch import TaskResult, TaskWatch

__all__ = ["MpiJob", "TaskResult"]

_START_TIMEOUT_S = 60.0
_IMPORT_TIMEOUT_S = 90.0  # of a test file; what it imports may be large, and the machine busy
_CLOSE_TIMEOUT_S = 10.0


class MpiJob:
    """Ranks under one mpirun that run test functions; launched at the first, and after trouble.

    Parameters
    ----------
    ranks
        Number of ranks.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._running: RunningJob | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        self._loaded: set[str] = set()  # names of the modules that the ranks have

    def run(
        self,
        file: Path,
        qualname: str,
        kwargs: Mapping[str, Any],
        *,
        module: str = "",
        timeout_s: float = 20.0,
    ) -> TaskResult:
        """Call a function of a test file on every rank.

        Parameters
        ----------
        file, qualname
            The file, and ``function`` or ``Class.function`` in it.
        kwargs
            Arguments; anything that cloudpickle can pickle.
        module
            Name to import the file under; default: the file's stem.
        timeout_s
            Deadline of the function, once its file has been imported. At it every rank's Python
            stacks are collected and the job is ended.

        Returns
        -------
        TaskResult
            However it went.

        Raises
        ------
        LauncherError
            If the job cannot be launched.
        """
        import cloudpickle

        pickled = cloudpickle.dumps(dict(kwargs))
        name = module or file.stem
        task = Task(str(file), name, qualname, pickled, timeout_s, tuple(sys.path))
        # Before the look at `_loaded`, which belongs to the job that runs.
        self._ensure_running()
        if name not in self._loaded:
            # A task of its own, so that the deadline of the test is not that of the imports.
            loading = self._do(replace(task, qualname="", timeout_s=_IMPORT_TIMEOUT_S))
            if loading.verdict != "passed":
                return loading
            self._loaded.add(name)
        return self._do(task)

    def _do(self, task: Task) -> TaskResult:
        """Hand over a task, and wait for it."""
        job, folder = self._ensure_running()
        self._number += 1
        # Before the task is handed over: what is written from now on is the task's.
        written = job.output_sizes()
        spool.put(spool.task_file(folder, self._number), task)
        try:
            result = self._follow(job, folder, written, task.timeout_s)
        except BaseException:  # Ctrl-C: nobody will ask these ranks anything any more
            self._discard()
            raise
        if result.verdict == "failed":
            self._discard()  # what it left half done must not meet the next test
        return result

    def _follow(
        self, job: RunningJob, folder: Path, written: Sequence[tuple[int, int]], timeout_s: float
    ) -> TaskResult:
        """Wait for the task just handed over; end the job if it will never be done."""
        problem = TaskWatch(job, folder, self._number, timeout_s).wait()
        if problem:
            # First, while the ranks still hang where they do.
            job.dump_stacks()
            job.wait(0.5)  # after a death mpirun says what it saw
            problem += f"\n{job.launcher_output().rstrip()}".rstrip()
            job.end()
        # After the end: a rank may have finished its function between the deadline and that.
        bodies = (spool.get(spool.body_file(folder, self._number, i)) for i in range(self.ranks))
        return TaskResult(tuple(bodies), job.outputs(written), problem)

    def _ensure_running(self) -> tuple[RunningJob, Path]:
        if self._running is None or self._folder is None:
            find_launcher()  # before anything is made that would have to be removed again
            self._folder = tempfile.TemporaryDirectory(prefix="mpistrat-spool-")
            argv = ["-m", "mpistrat.testing.worker", self._folder.name, str(self.ranks)]
            self._running = RunningJob(argv, self.ranks)
            self._number = 0
            self._loaded.clear()
            self._wait_for_start(self._running, Path(self._folder.name))
        return self._running, Path(self._folder.name)

    def _wait_for_start(self, job: RunningJob, folder: Path) -> None:
        said: list[Outcome | None] = []

        def is_over() -> bool:
            said[:] = [spool.get(spool.ready_file(folder, i)) for i in range(self.ranks)]
            # One rank that cannot start is enough: the others may wait for it in MPI_Init.
            return all(said) or any(one.text for one in said if one) or job.poll() is not None

        wait_until(is_over, _START_TIMEOUT_S, spool.POLL_S)
        troubles = [one.text for one in said if one and one.text]
        if all(said) and not troubles:
            return
        job.dump_stacks()
        job.end()
        written = "\n".join([*troubles[:1], job.launcher_output(), *_texts(job.outputs())])
        self._discard()
        raise LauncherError(
            f"a job of {self.ranks} ranks did not come up within {_START_TIMEOUT_S:g} s or ended "
            f"at start; what it wrote follows\n{written}"
        )

    def close(self) -> str:
        """End the job; return a complaint if it did not end well by itself, else an empty text."""
        if self._running is None or self._folder is None:
            return ""
        job = self._running
        # The ranks then end by themselves, and run what is registered for the end of a program.
        spool.put(spool.task_file(Path(self._folder.name), self._number + 1), None)
        complaint = ""
        if not job.wait(_CLOSE_TIMEOUT_S):
            job.dump_stacks()
            complaint = f"did not end within {_CLOSE_TIMEOUT_S:g} s after its last test"
        elif status := job.poll():
            complaint = f"ended with status {status} after its last test"
        written = "\n".join([job.launcher_output(), *_texts(job.outputs())]) if complaint else ""
        self._discard()
        return complaint and f"job of {self.ranks} ranks {complaint}\n{written}"

    def _discard(self) -> None:
        """End the job whatever it does, and forget it."""
        if self._running is not None:
            self._running.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._running = self._folder = None


def _texts(outputs: Sequence[RankOutput]) -> list[str]:
    return [f"----- rank {i}\n{out.text.rstrip()}" for i, out in enumerate(outputs) if out.text]
