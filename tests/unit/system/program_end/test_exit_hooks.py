"""The end of a program: phases in their order, errors and interrupts in them, forked children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.system.program_end.exit_hooks import Phase

HEADER = """
import atexit, os, signal, sys, time
from mpistrat.system.program_end import exit_hooks
from mpistrat.system.program_end.exit_hooks import Phase, ending, register

# Programs that a shell starts in the background inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def say(*words):
    return lambda: print(*words, flush=True)
"""


def ended(program, code=0):
    """Return what a program has printed when it has ended with an exit status."""
    path = os.pathsep.join([str(Path(mpistrat.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", HEADER + program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("order", ["Phase", "reversed(Phase)"])
def test_phases_come_in_their_order(order):
    done = ended(f"for phase in {order}: register(phase, say(phase.name))")
    assert done.stdout.split() == [phase.name for phase in Phase]
    assert done.stderr == ""


def test_the_order_is_that_of_what_the_phases_need():
    assert [phase.name for phase in sorted(Phase)] == [
        *("STRATEGIES", "FILES", "COMMUNICATORS", "TIMELINE", "ABORT", "PROCESS"),
    ]


def test_within_a_phase_the_first_comes_first():
    done = ended("for word in 'abc': register(Phase.FILES, say(word))")
    assert done.stdout.split() == ["a", "b", "c"]


def test_a_phase_begins_when_its_first_hook_would_by_atexit():
    """So what a program registers after it has made a strategy can use that."""
    done = ended("""
register(Phase.PROCESS, say("process"))
atexit.register(say("before the strategy"))
register(Phase.COMMUNICATORS, say("communicators"))
atexit.register(say("after the strategy"))
register(Phase.STRATEGIES, say("strategies"))
""")
    assert done.stdout.splitlines() == [
        *("strategies", "after the strategy", "communicators", "before the strategy", "process"),
    ]


def test_a_hook_may_register_another():
    done = ended("register(Phase.FILES, lambda: register(Phase.FILES, say('late')))")
    assert done.stdout.split() == ["late"]


@pytest.mark.parametrize("error", ["ValueError", "KeyboardInterrupt", "SystemExit"])
def test_an_error_in_one_phase_is_shown_and_the_others_run(error):
    done = ended(f"""
def fail():
    raise {error}("no more")
register(Phase.FILES, say("files"))
register(Phase.COMMUNICATORS, fail)
register(Phase.COMMUNICATORS, say("communicators"))
register(Phase.PROCESS, say("process"))
""")
    assert done.stdout.split() == ["files", "communicators", "process"]
    assert "[mpistrat] at the end of the program (COMMUNICATORS):\n" in done.stderr
    assert f"{error}: no more" in done.stderr
    assert "in fail" in done.stderr


def test_an_interrupt_ends_the_hook_in_which_it_comes_and_no_other():
    done = ended("""
def wait():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)
register(Phase.COMMUNICATORS, wait)
register(Phase.ABORT, say("abort"))
""")
    assert done.stdout.split() == ["abort"]
    assert "KeyboardInterrupt" in done.stderr


def test_an_interrupted_program_runs_them_all_and_they_know():
    done = ended(
        """
exit_hooks.watch_errors(lambda error: print("told", type(error).__name__, flush=True))
exit_hooks.watch_errors()
register(Phase.FILES, say("files"))
register(Phase.ABORT, lambda: print(type(ending.error).__name__, flush=True))
os.kill(os.getpid(), signal.SIGINT)
time.sleep(20)
""",
        -signal.SIGINT,
    )
    assert done.stdout.splitlines() == ["told KeyboardInterrupt", "files", "KeyboardInterrupt"]
    assert done.stderr.count("Traceback") == 1


def test_a_hook_that_the_program_sets_in_between_still_shows_the_error():
    done = ended(
        """
exit_hooks.watch_errors()
before = sys.excepthook
def mine(kind, error, trace):
    print("mine", error, flush=True)
    before(kind, error, trace)
sys.excepthook = mine
exit_hooks.watch_errors(lambda error: print("told", error, flush=True))
raise ValueError("once")
""",
        1,
    )
    assert done.stdout.splitlines() == ["told once", "mine once"]
    assert done.stderr.count("ValueError: once") == 1


def test_statuses_of_sys_exit_are_noted():
    done = ended(
        """
exit_hooks.watch_statuses()
for status in (None, 0, 7, "a text"):
    try:
        sys.exit(status)
    except SystemExit as error:
        assert error.code == status
register(Phase.PROCESS, lambda: print(ending.statuses, ending.error, flush=True))
sys.exit(5)
""",
        5,
    )
    assert done.stdout.splitlines() == ["[0, 0, 7, 1, 5] None"]


def test_a_forked_child_runs_its_own_only():
    done = ended("""
register(Phase.FILES, say("parent"))
child = os.fork()
if child == 0:
    register(Phase.FILES, say("child"))
else:
    os.waitpid(child, 0)
""")
    assert done.stdout.split() == ["child", "parent"]
