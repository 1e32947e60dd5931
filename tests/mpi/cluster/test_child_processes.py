"""Child processes of a rank: they are no ranks, are told so, and the job goes on.

One job starts many children, one after the other; each test looks at what one of them said.
"""

import functools

import pytest

from helpers.strategy.failing_job import run
from mpistrat.testing.sets import takes_long

MAKES_A_STRATEGY = """
import mpistrat as ms
try:
    print(f"made one of {ms.MirroredStrategy().num_replicas_in_sync}")
except ms.errors.ClusterError as error:
    print("refused:", error)
"""
# The last rank starts each child while the others wait for it; then all reduce once more.
BODY = f"""
import subprocess
CHILD = {MAKES_A_STRATEGY!r}

def start(*argv, **options):
    done = subprocess.run(
        [*argv], capture_output=True, text=True, timeout=30, check=False, **options
    )
    print(done.returncode, done.stdout, done.stderr)

"""
TURN = """
if rank == size - 1:
    print({name!r})
{body}
print("total", strategy.reduce("SUM", 1.0, axis=None))
print({end!r}, flush=True)
"""
END = "----- all have reduced"
REFUSED = "was {} by a rank of the job, pid "

PROGRAMS = {
    "program": "start(sys.executable, '-c', CHILD)",
    "program, close_fds=False": "start(sys.executable, '-c', CHILD, close_fds=False)",
}
OTHERS = {
    "shell": """
command = "import mpistrat; mpistrat.MirroredStrategy()"
start("sh", "-c", f'"{sys.executable}" -c "{command}"; echo status $?')
""",
    "without the variables": """
from mpistrat.cluster.launcher import launch_variables
env = {k: v for k, v in os.environ.items() if k not in launch_variables.variables()}
start(sys.executable, '-c', CHILD, env=env)
""",
}
JOBS = {
    environment: f"""
from mpistrat.testing.launcher import find_launcher
launcher = find_launcher()
start(*launcher.command(2), sys.executable, '-c', CHILD, env={environment})
"""
    for environment in ("launcher.environment()", "dict(os.environ)")
}
FORKED = {
    "fork": """
child = os.fork()
if child == 0:
    exec(CHILD)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
}
# Their MPI_Finalize would wait for the other ranks, in their rank's place.
FORKED_AND_LEFT = {
    "fork, sys.exit": """
child = os.fork()
if child == 0:
    sys.exit(3)
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "fork, file": """
child = os.fork()
if child == 0:
    kept = open(f"/proc/self/fd/{os.dup(1)}", "a")
    kept.write("of an open file, ")
    exit()
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    # What the rank itself has said of its end before is nothing of the child's.
    **{
        f"fork, {end}": f"""
try:
    sys.exit(7)
except SystemExit:
    child = os.fork()
if child == 0:
    {end}
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        for end in ("exit(4)", "raise SystemExit")
    },
    "fork, error": """
child = os.fork()
if child == 0:
    raise ValueError("of a child")
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
}
MULTIPROCESSING = {
    "multiprocessing": """
import multiprocessing
for method in ("spawn", "fork", "forkserver"):
    with multiprocessing.get_context(method).Pool(1) as pool:
        try:
            pool.apply(ms.MirroredStrategy)
        except ms.errors.ClusterError as error:
            print(method, error)
"""
}
# What starts MPI in this job, its ranks, and its children.
STARTS_MPI = {"the strategy": "", "the program": "from mpi4py import MPI"}
CHILDREN = {
    ("the strategy", 1): PROGRAMS,
    ("the strategy", 2): PROGRAMS | OTHERS | JOBS | FORKED | MULTIPROCESSING,
    ("the program", 3): FORKED | FORKED_AND_LEFT,
}


@functools.cache
def job(first: str, ranks: int) -> dict[str, str]:
    """Run a job; return what the last rank printed of each child."""
    children = CHILDREN[first, ranks]
    program = BODY
    for name, body in children.items():
        indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
        program += TURN.format(name=name, body=indented, end=END)
    result = run(program, ranks, before=STARTS_MPI[first]).check()
    for one in result.ranks:
        assert one.stdout.count(f"total {float(ranks)}\n{END}\n") == len(children), result.output
    said = [part.lstrip("\n").split("\n", 1) for part in result.ranks[-1].stdout.split(END)[:-1]]
    assert [name for name, _ in said] == list(children), result.output
    return dict(said)  # type: ignore[arg-type]


@takes_long()
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_a_rank_starts_is_told(ranks: int, name: str) -> None:
    said = job("the strategy", ranks)[name]
    assert said.startswith("0 refused:"), said
    assert REFUSED.format("started") in said
    assert "start it without the launcher's variables in its environment" in said


@takes_long()
def test_so_is_one_that_a_shell_starts_and_its_failure_is_its_own() -> None:
    said = job("the strategy", 2)["shell"]
    assert said.startswith("0 status 1\n"), said
    assert "ClusterError: this process (pid" in said


@takes_long()
def test_without_the_variables_it_runs_alone() -> None:
    said = job("the strategy", 2)["without the variables"]
    assert said.startswith("0 made one of 1\n"), said


@takes_long()
@pytest.mark.parametrize("environment", JOBS)
def test_a_job_that_a_rank_starts_is_one(environment: str) -> None:
    said = job("the strategy", 2)[environment]
    assert said.count("made one of 2") == 2, said


@takes_long()
@pytest.mark.parametrize(("first", "ranks"), [("the strategy", 2), ("the program", 3)])
def test_a_forked_child_is_told(first: str, ranks: int) -> None:
    said = job(first, ranks)["fork"]
    assert said.startswith("refused:"), said
    assert REFUSED.format("forked") in said


@takes_long()
def test_a_process_of_multiprocessing_is_told() -> None:
    said = job("the strategy", 2)["multiprocessing"]
    assert said.count("by a rank of the job, pid ") == 3, said
    assert said.count('under `if __name__ == "__main__":`') == 2, said  # of those not forked


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fork, sys.exit", "status 3\n"),
        ("fork, exit(4)", "status 4\n"),
        ("fork, raise SystemExit", "status 0\n"),
        ("fork, error", "status 1\n"),
        ("fork, file", "of an open file, status 0\n"),
    ],
)
def test_a_forked_child_ends_without_mpi(name: str, said: str) -> None:
    assert said in job("the program", 3)[name]
