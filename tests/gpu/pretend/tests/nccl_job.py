"""Start programs of ranks (nccl_programs/) under mpirun, on pretended GPUs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

PROGRAMS = Path(__file__).with_name("nccl_programs")


def why_not() -> str | None:
    """Return why ranks cannot run here, or None."""
    try:
        metadata.version("cupy-rocm-7-0")
    except metadata.PackageNotFoundError:
        return "cupy-rocm-7-0 is not installed"
    if shutil.which("mpirun", path=_path()) is None:
        return "mpirun is not installed"
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not any(Path(folder, "librccl.so.1").exists() for folder in folders if folder):
        return "LD_LIBRARY_PATH names no librccl.so.1: start the tests on pretended GPUs"
    return None


def run(program: str, ranks: int, timeout_s: float = 60, **variables: str) -> str:
    """Run programs on ranks, each with a GPU of its own; return what they print.

    Parameters
    ----------
    program
        ``file.function`` or ``file.function,function``, of a file in nccl_programs/.
    ranks
        How many.
    timeout_s
        When they are killed, and the test fails.
    variables
        Of their environment, besides this one's.

    Raises
    ------
    AssertionError
        A rank failed, or they did not end in time; it carries their output.
    """
    output, code = _outcome(program, ranks, timeout_s, variables)
    assert code == 0, f"exit code {code}\n{output}"
    assert _done(output) == set(range(ranks)), output
    return output


def _path() -> str:
    """PATH with the scripts of this interpreter's environment first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _done(output: str) -> set[int]:
    return {int(rank) for rank in re.findall(r"rank (\d+) is done", output)}


def _outcome(
    program: str, ranks: int, timeout_s: float, variables: dict[str, str]
) -> tuple[str, int]:
    """Run a program; return what its ranks and mpirun print, and the exit code."""
    file, functions = program.split(".")
    command = ["mpirun", "-n", str(ranks), sys.executable]
    command += [str(PROGRAMS / f"{file}.py"), *functions.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PATH": _path(),
            "PRETEND_SEPARATE": "1",
            "OUTPUT": folder,
            **variables,
        }
        mpirun, code = _wait(command, environment, timeout_s)
        outputs = [path.read_text() for path in sorted(Path(folder).iterdir())]
    output = "".join([*outputs, mpirun])
    assert code is not None, f"not within {timeout_s} s:\n{output}"
    return output, code


def _wait(
    command: list[str], environment: dict[str, str], timeout_s: float
) -> tuple[str, int | None]:
    """Return a command's output and exit code, None if it had to be ended."""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            return job.communicate(timeout=timeout_s)[0], job.returncode
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGTERM)  # mpirun ends its ranks
        try:
            return job.communicate(timeout=5)[0], None
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return job.communicate()[0], None
