"""Child processes of a rank: they are no ranks, are told so, and the job goes on."""

import pytest

from helpers.strategy_job import run

MAKES_A_STRATEGY = """
import mpistrat as ms
try:
    print(f"made one of {ms.MirroredStrategy().num_replicas_in_sync}")
except ms.errors.ClusterError as error:
    print("refused:", error)
"""
# The last rank starts a child while the others wait for it; then all reduce once more.
BODY = f"""
import subprocess
CHILD = {MAKES_A_STRATEGY!r}

def start(*argv, **options):
    done = subprocess.run(
        [*argv], capture_output=True, text=True, timeout=30, check=False, **options
    )
    print(done.returncode, done.stdout, done.stderr)

if rank == size - 1:
    @BODY@
print("total", strategy.reduce("SUM", 1.0, axis=None))
"""
REFUSED = "was {} by a rank of the job, pid "


def output_of_the_child(body: str, ranks: int, before: str = "") -> str:
    result = run(BODY.replace("@BODY@", body), ranks, before=before).check()
    assert all(f"total {float(ranks)}\n" in one.stdout for one in result.ranks), result.output
    return result.ranks[-1].stdout


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("options", ["", ", close_fds=False"])
def test_a_program_that_a_rank_starts_is_told(ranks: int, options: str) -> None:
    said = output_of_the_child(f"start(sys.executable, '-c', CHILD{options})", ranks)
    assert said.startswith("0 refused:"), said
    assert REFUSED.format("started") in said
    assert "start it without the launcher's variables in its environment" in said


@pytest.mark.parametrize("ranks", [2, 3])
def test_so_is_one_that_a_shell_starts_and_its_failure_is_its_own(ranks: int) -> None:
    command = "import mpistrat; mpistrat.MirroredStrategy()"
    body = f'start("sh", "-c", f\'"{{sys.executable}}" -c "{command}"; echo status $?\')'
    said = output_of_the_child(body, ranks)
    assert said.startswith("0 status 1\n"), said
    assert "ClusterError: this process (pid" in said


@pytest.mark.parametrize("ranks", [2, 3])
def test_without_the_variables_it_runs_alone(ranks: int) -> None:
    body = """
    from mpistrat.cluster import launch
    env = {k: v for k, v in os.environ.items() if k not in launch.variables()}
    start(sys.executable, '-c', CHILD, env=env)"""
    assert output_of_the_child(body.lstrip(), ranks).startswith("0 made one of 1\n")


@pytest.mark.parametrize("environment", ["launcher.environment()", "dict(os.environ)"])
def test_a_job_that_a_rank_starts_is_one(environment: str) -> None:
    body = f"""
    from mpistrat.testing.launcher import find_launcher
    launcher = find_launcher()
    start(*launcher.command(2), sys.executable, '-c', CHILD, env={environment})"""
    said = output_of_the_child(body.lstrip(), 2)
    assert said.count("made one of 2") == 2, said


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("before", ["", "from mpi4py import MPI"])
def test_a_forked_child_is_told(ranks: int, before: str) -> None:
    body = """
    child = os.fork()
    if child == 0:
        exec(CHILD)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)"""
    said = output_of_the_child(body.lstrip(), ranks, before)
    assert said.startswith("refused:"), said
    assert REFUSED.format("forked") in said


def test_a_process_of_multiprocessing_is_told() -> None:
    body = """
    import multiprocessing
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            try:
                pool.apply(ms.MirroredStrategy)
            except ms.errors.ClusterError as error:
                print(method, error)"""
    said = output_of_the_child(body.lstrip(), 2)
    assert said.count("by a rank of the job, pid ") == 3, said
