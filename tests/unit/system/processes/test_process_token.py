"""The text by which ranks tell processes apart."""

import subprocess
import sys

from mpistrat.system.processes.process_token import process_token

# As in two containers: the same host name, and the same number.
IN_CONTAINER = """
import os
os.getpid = lambda: 7
from mpistrat.system.processes.process_token import process_token
print(process_token())
"""


def test_processes_of_two_containers_differ():
    tokens = {
        subprocess.run(
            [sys.executable, "-c", IN_CONTAINER], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(tokens) == 2


def test_a_process_keeps_its_own():
    assert process_token() == process_token()
