"""The plugin: bodies on ranks, and what is shown when a rank fails, hangs or dies."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpistrat
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.sets import takes_long

_turns: list[int] = []


@pytest.mark.mpi(ranks=[1, 2, 3])
def test_body_runs_on_every_rank() -> None:
    comm = MPI.COMM_WORLD
    assert comm.allreduce(1) == comm.size
    assert sorted(comm.allgather(os.getpid())) == sorted(set(comm.allgather(os.getpid())))


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("scale", [1, 10])
def test_sizes_and_values_multiply(scale: int) -> None:
    assert MPI.COMM_WORLD.allreduce(scale) in (2 * scale, 3 * scale)


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("turn", [0, 1, 2])
def test_tests_of_one_file_and_size_share_a_job(turn: int) -> None:
    assert _turns == list(range(turn))  # what earlier tests left in this process
    _turns.append(turn)


class Pair:
    """A class of the test file travels to the ranks, and is the same class there."""

    def __init__(self, left: int, right: int) -> None:
        self.left, self.right = left, right


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("array", "function", "pair"), [(np.arange(3.0), lambda x: x + 1, Pair(1, 2))]
)
def test_any_value_travels(
    array: np.ndarray, function: Callable[[np.ndarray], np.ndarray], pair: Pair
) -> None:
    np.testing.assert_array_equal(function(array), [1.0, 2.0, 3.0])
    assert isinstance(pair, Pair)
    assert pair.right == MPI.COMM_WORLD.size


@takes_long()
class TestMethods:
    """Methods run on a new instance on each rank."""

    word = "here"

    @pytest.mark.mpi(ranks=2)
    def test_method(self) -> None:
        assert self.word == "here"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layout_decides_where(layout: Layout) -> None:
    assert MPI.COMM_WORLD.size == layout.ranks
    assert (
        layout.replicas == layout.ranks * layout.devices == layout.ranks * len(layout.device_names)
    )


HEADER = "import os, signal, time\nimport pytest\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"

# Tests of one file, each followed by one that has to pass: in the same job, or in a new one.
NEXT = "\n@pytest.mark.mpi(ranks=2)\ndef test_after_{}(): assert comm.allreduce(1) == 2\n"
CASES = {
    "failure": """
@pytest.mark.mpi(ranks=2)
def test_failure():
    print(f"said by {comm.rank}")
    assert comm.rank != 1, "the message"
""",
    "left_waiting": """
from mpistrat.testing.tasks import watch
watch._FAILURE_GRACE_S = 0.5

@pytest.mark.mpi(ranks=2, timeout_s=50)
def test_left_waiting():
    if comm.rank == 0: raise ValueError("early")
    comm.recv(source=0)
""",
    "hang": """
def stuck_here():
    comm.recv(source=comm.rank)

@pytest.mark.mpi(ranks=2, timeout_s=1)
def test_hang(): stuck_here()
""",
    "rare_looks": """
from mpistrat.testing.tasks import spool

@pytest.fixture(autouse=True)
def rare_looks(request, monkeypatch):
    if request.node.name == "test_rare_looks":
        monkeypatch.setattr(spool, "_IDLE_AFTER", 1)

@pytest.mark.mpi(ranks=2, timeout_s=1)
def test_rare_looks(): stuck_here()
""",
    "exit_7": """
def dies(death):
    if comm.rank == 1: death()
    comm.recv(source=1)

@pytest.mark.mpi(ranks=2)
def test_exit_7(): dies(lambda: os._exit(7))
""",
    "exit_0": """
@pytest.mark.mpi(ranks=2)
def test_exit_0(): dies(lambda: os._exit(0))
""",
    "kill": """
@pytest.mark.mpi(ranks=2)
def test_kill(): dies(lambda: os.kill(os.getpid(), 9))
""",
    "skip": """
@pytest.mark.mpi(ranks=2)
def test_skip(): pytest.skip("not here")
""",
    "skip_of_one": """
@pytest.mark.mpi(ranks=2)
def test_skip_of_one():
    if comm.rank == 0: pytest.skip("not me")
""",
    "fixture": "@pytest.mark.mpi\ndef test_fixture(tmp_path): pass\n",
    # Last: what it leaves behind shows when the job ends.
    "bad_exit": """
@pytest.mark.mpi(ranks=2)
def test_bad_exit():
    import atexit
    atexit.register(os._exit, 5)
""",
}


@dataclass(frozen=True)
class Report:
    """What an inner pytest made of the tests of a file: outcomes, sections, seconds, and all."""

    outcomes: dict[str, str]
    sections: dict[str, str]
    durations_s: dict[str, float]
    text: str

    @classmethod
    def of(cls, text: str) -> "Report":
        parts = re.split(r"^_{3,} (test_\w+) _{3,}$", text, flags=re.MULTILINE)
        outcomes = re.findall(r"^\S+::(test_\w+) (PASSED|FAILED|SKIPPED)", text, re.MULTILINE)
        took = re.findall(r"^([\d.]+)s call +.*::(test_\w+)", text, re.MULTILINE)
        return cls(
            dict(outcomes),
            dict(zip(parts[1::2], parts[2::2], strict=True)),
            {name: float(seconds) for seconds, name in took},
            text,
        )

    def check(self, name: str, outcome: str, *lines: str) -> None:
        """Check how a test ended, that its section has `lines`, and that the next one passed."""
        assert self.outcomes[f"test_{name}"] == outcome, self.text
        assert self.outcomes[f"test_after_{name}"] == "PASSED", self.text
        if lines:
            matcher = pytest.LineMatcher(self.sections[f"test_{name}"].splitlines())
            matcher.fnmatch_lines(lines)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return what one inner pytest makes of all cases."""
    folder = tmp_path_factory.mktemp("cases")
    folder.joinpath("conftest.py").write_text("pytest_plugins = ['mpistrat.testing.plugin']\n")
    code = HEADER + "".join(code + NEXT.format(name) for name, code in CASES.items())
    folder.joinpath("test_cases.py").write_text(code)
    argv = ["--import-mode=importlib", "-v", "-rA", "--durations=0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *argv, str(folder), f"--rootdir={folder}"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(mpistrat.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Report.of(done.stdout)


@takes_long()
def test_failure_on_one_rank_shows_its_traceback(report: Report) -> None:
    report.check(
        "failure",
        "FAILED",
        "===== rank 0 of 2: passed =====",
        "said by 0",
        "===== rank 1 of 2: failed =====",
        "Traceback (most recent call last):",
        "*AssertionError: the message",
        "assert 1 != 1",
        "said by 1",
    )


@takes_long()
def test_a_rank_left_waiting_by_a_failure_does_not_use_up_the_deadline(report: Report) -> None:
    waiting = "*since a rank failed; still in the test: rank 1 of 2*"
    report.check("left_waiting", "FAILED", waiting, "*ValueError: early")
    assert report.durations_s["test_left_waiting"] < 30


@takes_long()
@pytest.mark.parametrize("name", ["hang", "rare_looks"])
def test_hang_shows_the_stacks_of_all_ranks(report: Report, name: str) -> None:
    report.check(
        name,
        "FAILED",
        "deadline of 1 s passed; still in the test: rank 0, 1 of 2",
        "===== rank 0 of 2: did not finish =====",
        "*in stuck_here",
        "===== rank 1 of 2: did not finish =====",
        "*in stuck_here",
    )


@takes_long()
@pytest.mark.parametrize("death", ["exit_7", "exit_0", "kill"])
def test_death_of_a_rank_is_a_failure(report: Report, death: str) -> None:
    report.check(death, "FAILED")
    seen = r"^(the process of rank .*of 2 ended in the test|mpirun ended with status)"
    assert re.search(seen, report.sections[f"test_{death}"], re.MULTILINE), report.text
    assert report.durations_s[f"test_{death}"] < 18, report.text  # its deadline is 20 s


@takes_long()
def test_skip_needs_all_ranks(report: Report) -> None:
    report.check("skip_of_one", "FAILED", "===== rank 0 of 2: skipped =====", "not me")
    assert re.search(r"^SKIPPED \[1\] .*: not here$", report.text, re.MULTILINE), report.text
    assert report.outcomes["test_skip"] == "SKIPPED"
    assert report.outcomes["test_after_skip"] == "PASSED"


@takes_long()
def test_fixtures_cannot_travel(report: Report) -> None:
    report.check("fixture", "FAILED", "*uses the fixture tmp_path;*")


@takes_long()
def test_work_left_over_is_a_warning(report: Report) -> None:
    report.check("bad_exit", "PASSED")
    said = r"job of 2 ranks ended with status .* after its last test"
    assert len(re.findall(said, report.text)) == 1, report.text


def outcome(inner: pytest.Pytester, code: str, **expected: int) -> pytest.RunResult:
    inner.makepyfile(HEADER + code)
    result = inner.runpytest_subprocess("--import-mode=importlib", "-rA", timeout=60)
    result.assert_outcomes(**expected)
    return result


@takes_long()
def test_a_slow_import_does_not_use_up_the_deadline(inner: pytest.Pytester) -> None:
    code = """
time.sleep(1.2)

@pytest.mark.mpi(ranks=2, timeout_s=1)
def test_is_quick(): assert comm.size == 2
"""
    outcome(inner, code, passed=1)


def test_unknown_marker_argument_is_an_error(inner: pytest.Pytester) -> None:
    code = "@pytest.mark.mpi(size=2)\ndef test_wrong(): pass\n"
    outcome(inner, code, errors=1).stdout.fnmatch_lines(["*got () {'size': 2}; expected ranks=*"])


@takes_long()
@pytest.mark.parametrize(("allowed", "outcomes"), [("0", {"failed": 1}), ("1", {"skipped": 1})])
def test_without_mpirun(
    inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, allowed: str, outcomes: dict[str, int]
) -> None:
    monkeypatch.setenv("MPISTRAT_TESTS_WITHOUT_MPI", allowed)
    code = """
from mpistrat.testing.launching import mpirun
@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    monkeypatch.setattr(mpirun.sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
@pytest.mark.mpi
def test_needs_mpi(): pass
"""
    outcome(inner, code, **outcomes).stdout.fnmatch_lines(["*found no mpirun in *"])


def test_order_groups_files_and_sizes(inner: pytest.Pytester) -> None:
    code = """
@pytest.mark.mpi(ranks=[3, 2])
@pytest.mark.parametrize("x", [0, 1])
def test_a(x): pass
def test_here(): pass
"""
    inner.makepyfile(HEADER + code)
    result = inner.runpytest_subprocess("--collect-only", "-q", timeout=60)
    names = [line.rpartition("::")[2] for line in result.outlines if "::" in line]
    assert names[0] == "test_here"
    assert [name.partition("ranks")[2][:1] for name in names[1:]] == ["2", "2", "3", "3"]


WHO = """
import os
from pathlib import Path
import pytest

@pytest.mark.mpi({})
def test_who(): Path(__file__).with_suffix(f".{{os.getpid()}}").touch()
"""


@takes_long()
def test_files_of_a_folder_share_jobs_while_there_is_room(inner: pytest.Pytester) -> None:
    sizes = ["2", "3", "2", "5", "2", "2, alone=True", "2"]
    inner.makepyfile(**{f"test_{i}": WHO.format(size) for i, size in enumerate(sizes)})
    inner.runpytest_subprocess("--import-mode=importlib").assert_outcomes(passed=len(sizes))

    def job(number: int) -> set[str]:
        """Return the processes that the test of a file ran in."""
        return {file.suffix for file in inner.path.glob(f"test_{number}.*")} - {".py"}

    assert [len(job(number)) for number in range(7)] == [2, 3, 2, 5, 2, 2, 2]
    assert job(0) == job(2)
    assert not job(2) & job(4), "there is no room beside the job of five"
    assert job(4) == job(6), "who is alone comes last"
    assert not job(5) & job(6)


@takes_long()
def test_folders_below_one_conftest_share_jobs(inner: pytest.Pytester) -> None:
    for folder in ("a", "b", "c"):
        inner.mkdir(folder).joinpath("test_it.py").write_text(WHO.format(2))
    inner.path.joinpath("b", "conftest.py").touch()
    inner.runpytest_subprocess("--import-mode=importlib").assert_outcomes(passed=3)
    jobs = [
        {file.suffix for file in inner.path.glob(f"{one}/test_it.*")} - {".py"} for one in "abc"
    ]
    assert jobs[0] == jobs[2]
    assert not jobs[0] & jobs[1]
