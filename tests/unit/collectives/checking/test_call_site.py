"""The line of a user's program that errors name."""

import sys
from concurrent.futures import ThreadPoolExecutor

from mpistrat.collectives.checking import call_site


def caller_in(file):
    names = {"caller": call_site.caller}
    exec(compile("def f():\n    return caller()\n", file, "exec"), names)
    return names["f"]()


def test_caller_is_the_innermost_line_outside_the_package():
    package = call_site._PACKAGE.rstrip("/")
    assert caller_in("/home/user/train.py") == "/home/user/train.py:2 (f)"
    assert "test_call_site.py" in caller_in(f"{package}/collectives/progress/work.py")
    libraries = "/opt/venv/lib/python3.11/site-packages"
    assert caller_in(f"{libraries}/users/model.py") == f"{libraries}/users/model.py:2 (f)"
    for framework in ("tensorflow/python/ops.py", "keras/src/backend.py"):
        assert "test_call_site.py" in caller_in(f"{libraries}/{framework}")
    beside = f"{package}_app/train.py"  # a user's folder whose name begins like the package's
    assert caller_in(beside) == f"{beside}:2 (f)"


def test_caller_is_outside_the_package_where_that_is_installed(monkeypatch):
    installed = "/opt/venv/lib/python3.11/site-packages/mpistrat/"
    monkeypatch.setattr(call_site, "_PACKAGE", installed)
    assert "test_call_site.py" in caller_in(f"{installed}collectives/progress/work.py")


def test_caller_is_not_what_tensorflow_generates_for_an_operation():
    names = {"caller": call_site.caller, "_op_def_library": None}
    exec(compile("def f():\n    return caller()\n", "<string>", "exec"), names)
    assert "test_call_site.py" in names["f"]()


def test_a_thread_without_a_line_of_its_own_names_that_of_the_main_thread():
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(call_site.caller).result()
    assert "test_call_site.py" in text
    assert text.endswith(") of the main thread")
    here = sys._getframe()
    assert "of the main thread" not in call_site.caller(here)
