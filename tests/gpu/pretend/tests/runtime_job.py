"""Start the programs of runtime_programs/ on pretended GPUs, each in a process of its own.

The runtime reads its settings once, and many programs end by a signal on purpose.
"""

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).with_name("runtime_programs")


class Outcome(NamedTuple):
    """How a program ended: its exit code (minus a signal's number), and what it printed."""

    code: int
    output: str


def why_not() -> str | None:
    """Return why the programs cannot run here, or None."""
    try:
        metadata.version("cupy-rocm-7-0")
    except metadata.PackageNotFoundError:
        return "cupy-rocm-7-0 is not installed"
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not any(Path(folder, "pretend-device").exists() for folder in folders if folder):
        return "no pretended GPUs: start the tests by tests/gpu/pretend/run.py"
    return None


def outcome(program: str, timeout_s: float = 60, **variables: str) -> Outcome:
    """Run ``file.function`` or ``file.function,function`` to its end.

    Parameters
    ----------
    program
        Functions of a file in runtime_programs/.
    timeout_s
        When it is killed, with all processes that it has started, and the test fails.
    variables
        Of its environment, besides this one's without PRETEND_*.

    Raises
    ------
    AssertionError
        It did not end in time; carries what it printed.
    """
    with started(program, **variables) as process:
        try:
            output = process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            message = f"{program} did not end within {timeout_s} s:\n{output}"
            raise AssertionError(message) from None
    return Outcome(process.returncode, output)


def started(program: str, **variables: str) -> subprocess.Popen[str]:
    """Start a program in a session of its own."""
    file, functions = program.split(".")
    others = {key: value for key, value in os.environ.items() if not key.startswith("PRETEND_")}
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / f"{file}.py"), *functions.split(",")],
        env={**others, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(program: str, timeout_s: float = 60, **variables: str) -> str:
    """Run a program that has to succeed; return what it printed.

    Raises
    ------
    AssertionError
        It failed, or did not come to the end of all its functions.
    """
    code, output = outcome(program, timeout_s, **variables)
    assert code == 0, f"{program}: exit code {code}\n{output}"
    for function in program.split(".")[1].split(","):
        assert f"{function} is done" in output, output
    return output
