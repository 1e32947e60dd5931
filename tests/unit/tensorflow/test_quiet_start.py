"""Standard error while TensorFlow is imported."""

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

PROGRAM = """
import os, sys
sys.modules["tensorflow"] = None  # it is not imported here
from mpistrat.cluster.launcher import launch_variables
import importlib.util
from pathlib import Path
import mpistrat

path = Path(mpistrat.__file__).parent / "tensorflow" / "quiet_start.py"
spec = importlib.util.spec_from_file_location("quiet_start", path)
quiet_start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(quiet_start)
lines = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:17.7   1 port.cc:153] oneDNN custom operations are on. You may see",
    "To enable the following instructions: AVX2, in other operations, rebuild TensorFlow",
    "W0000 00:00:17.7   1 some.cc:1] a warning",
    "E0000 00:00:17.7   1 some.cc:1] an error",
]
print("before", file=sys.stderr)
try:
    with quiet_start.without_start():
        os.write(2, "\\n".join(lines).encode() + b"\\n")
        print("of Python", file=sys.stderr)
        raise ImportError("no such library")
except ImportError as error:
    print(error, file=sys.stderr)
os.write(2, b"I0000 00:00 later\\n")
"""


def test_only_lines_of_information_are_dropped_and_an_error_loses_nothing():
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, capture_output=True, timeout=30, check=True)
    first, warning, error, python, raised, later = done.stderr.decode().splitlines()
    assert (first, python, raised) == ("before", "of Python", "no such library")
    assert warning.startswith("W0000")
    assert error.startswith("E0000")
    assert later == "I0000 00:00 later"
