"""A build that SIGTERM or SIGHUP ends takes its compilers with it."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import pathlib, sys, tempfile
from mpistrat.horovod_build.logged_commands import run_logged
from mpistrat.horovod_build.termination import exit_at_termination
folder = pathlib.Path(sys.argv[1])
with exit_at_termination(), tempfile.TemporaryDirectory(dir=folder, prefix="build-"):
    run_logged(["sh", "-c", f"echo $$ > {folder}/new; mv {folder}/new {folder}/pid; sleep 60"],
               folder / "log", 60, "")
"""


def wait_until(is_so, timeout_s=20):
    end = time.monotonic() + timeout_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_so()


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().split()[2] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_child_processes_too(number, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    wait_until((tmp_path / "pid").exists)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    child = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_until(lambda: has_ended(child))
    assert not list(tmp_path.glob("build-*"))


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    code = (
        "import os, signal\n"
        "from mpistrat.horovod_build.termination import exit_at_termination\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with exit_at_termination():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('went on')\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "went on\n", done.stderr
