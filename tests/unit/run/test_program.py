"""``mpistrat run`` runs a program as ``python`` does: the same output, errors and status."""

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from mpistrat.testing.sets import takes_long

TELL = """
import sys
from pathlib import Path
print(sys.argv, __name__, __package__, __spec__ and __spec__.name)
print(globals().get("__file__"), sys.path[0], sys.modules["__main__"].__dict__ is globals())
"""
FAILS = "def f():\n    raise ValueError('é wrong')\n\n\nf()\n"
CHILDREN = """
import atexit
import multiprocessing


def double(x):
    return 2 * x


def at_end():
    print("at the end", double(4), flush=True)


if __name__ == "__main__":
    atexit.register(at_end)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]), flush=True)
"""
CASES = {
    "what it sees": (TELL, 0),
    "exit status": ("import sys\nsys.exit(3)\n", 3),
    "exit message": ("raise SystemExit('no more')\n", 1),
    "error": (FAILS, 1),
    "no syntax": ("x = (1\n", 1),
    "other encoding": ("# -*- coding: latin-1 -*-\nprint(len('é'))\n", 0),
    "its own hook": ("import sys\nsys.excepthook = lambda *a: print('mine', a[0])\n1/0\n", 1),
    "child processes": (CHILDREN, 0),
}


def ended(*arguments, cwd):
    env = {k: v for k, v in os.environ.items() if k not in {"TF_CONFIG", "PYTHONSAFEPATH"}}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env=env | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    return done.returncode, done.stdout, done.stderr


def both(*arguments, cwd):
    """Return how Python runs a program; it ends the same way under mpistrat."""
    want = ended(*arguments, cwd=cwd)
    assert ended("-m", "mpistrat", "run", *arguments, cwd=cwd) == want
    return want


@pytest.mark.parametrize("case", CASES)
def test_a_file(case, tmp_path):
    text, status = CASES[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "program.py").write_text(text, "utf-8")
    assert both("folder/program.py", "-v", "--explain", cwd=tmp_path)[0] == status


def test_a_link_to_a_file_elsewhere(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "program.py").write_text(TELL)
    (tmp_path / "link.py").symlink_to("home/program.py")
    assert both("link.py", cwd=tmp_path)[0] == 0


@pytest.mark.parametrize("name", ["package", "package.inner"])
def test_a_module(name, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("print('imported', __name__)\n")
    (package / "__main__.py").write_text(TELL)
    (package / "inner.py").write_text(TELL + "from . import other\n" + FAILS)
    (package / "other.py").write_text("print('other')\n")
    # Python has frames of its own runpy in the error's text.
    want, got = (
        ended(*run, "-m", name, "--flag", cwd=tmp_path) for run in ([], ["-m", "mpistrat", "run"])
    )
    assert got[:2] == want[:2]
    assert want[2].endswith(got[2].removeprefix("Traceback (most recent call last):\n"))


@takes_long()
def test_a_folder_and_a_text(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(TELL)
    assert both("app", "x", cwd=tmp_path)[0] == 0
    assert both("-c", TELL, "-m", cwd=tmp_path)[0] == 0
    assert both(f"-c{TELL}", "-x", "y", cwd=tmp_path)[0] == 0
    assert both("app", "-mx", "-cy", cwd=tmp_path)[0] == 0


def test_a_compiled_file(tmp_path):
    (tmp_path / "program.py").write_text(TELL)
    py_compile.compile(str(tmp_path / "program.py"), str(tmp_path / "other.pyc"))
    assert both("other.pyc", "x", cwd=tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "cannot open 'missing.py': No such file"),
        (["-m", "no_such_module"], "no module named 'no_such_module'"),
        (["-m", "no_such.module"], "no module 'no_such.module'"),
        ([], "no program; expected a Python file"),
        (["--ps", "-1", "-c", "1"], "num_ps=-1"),
    ],
)
def test_what_cannot_be_run(arguments, said, tmp_path):
    status, _, error = ended("-m", "mpistrat", "run", *arguments, cwd=tmp_path)
    assert status == 2
    assert error.startswith("mpistrat run: ")
    assert said in error


def test_an_interrupt(tmp_path):
    # What a shell starts in the background inherits that SIGINT is ignored.
    text = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text += "signal.raise_signal(signal.SIGINT)\n"
    status, _, error = ended("-m", "mpistrat", "run", "-c", text, cwd=tmp_path)
    assert status == 130
    assert error.endswith("KeyboardInterrupt\n")


@takes_long()
def test_it_is_listed(tmp_path):
    pytest.importorskip("typer")
    status, shown, _ = ended("-m", "mpistrat", "--help", cwd=tmp_path)
    assert status == 0
    assert "tf.distribute on MPI ranks" in shown
    status, shown, _ = ended("-m", "mpistrat", "run", "--help", cwd=tmp_path)
    assert (status, "--explain" in shown) == (0, True)
