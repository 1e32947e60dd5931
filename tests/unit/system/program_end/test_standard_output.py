"""Messages that a rank prints at its end are whole, and read before the job is aborted."""

import os
import subprocess
import sys
import threading

import pytest

from mpistrat.system.program_end import standard_output

WAITS = """
import sys, time
from mpistrat.system.program_end import standard_output
sys.stderr.write("last words")
start = time.monotonic()
standard_output.wait_until_read({limit})
print(time.monotonic() - start)
"""


def waited_s(limit_s: float, stderr: int, stdout: int = subprocess.PIPE) -> float:
    program = WAITS.format(limit=limit_s)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=stdout, stderr=stderr, check=True, timeout=30
    )
    return float(done.stdout)


def test_the_reader_of_a_pipe_is_waited_for():
    ours, theirs = os.pipe()
    reader = threading.Timer(1.0, os.read, (ours, 100))
    reader.start()
    assert 0.3 < waited_s(20.0, theirs) < 10
    reader.join()
    os.close(ours)
    os.close(theirs)


def test_a_reader_that_does_not_read_is_not_waited_for_for_ever():
    ours, theirs = os.pipe()
    assert 0.5 < waited_s(0.5, theirs) < 10
    assert os.read(ours, 100) == b"last words"
    os.close(ours)
    os.close(theirs)


def test_files_need_no_reader(tmp_path):
    program = WAITS.format(limit=20)
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w") as err:
        subprocess.run(
            [sys.executable, "-c", program], stdout=out, stderr=err, check=True, timeout=30
        )
        out.seek(0)
        assert float(out.read()) < 0.1


def fail():
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_uncaught_error_looks_as_python_shows_it_and_is_one_write(monkeypatch, capsys, error):
    try:
        fail()
    except ValueError as caught:
        seen = caught if error is ValueError else error().with_traceback(caught.__traceback__)
    sys.__excepthook__(type(seen), seen, seen.__traceback__)
    expected = capsys.readouterr().err
    writes = []
    monkeypatch.setattr(sys.stderr, "write", writes.append)
    standard_output.show_error(type(seen), seen, seen.__traceback__)
    assert writes == [expected]
