"""Unchanged programs with parameter servers: MPI gives the roles, not their addresses."""

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(300)

PROGRAMS = Path(__file__).with_name("programs")
SHOWN = {
    "roles": ["total 45.0 doubled 90.0", "learns True"],
    "in_process": ["weight 3.0", "loss 0.0"],
}


@takes_long()
@pytest.mark.parametrize(
    ("program", "ranks", "said"),
    [
        ("in_process", 2, "2 ranks are too few"),  # test_page.py has a program of roles
        pytest.param("roles", 3, "one rank a parameter server", marks=repeats()),
        pytest.param("in_process", 4, "1 chief, 1 worker, 2 ps", marks=repeats()),
        pytest.param("in_process", 1, "1 chief, 1 worker, 2 ps", marks=repeats()),
        pytest.param("roles", 2, "2 ranks are too few", marks=repeats()),
        pytest.param("roles", 1, "one rank a parameter server", marks=repeats()),
    ],
)
def test_the_chief_goes_on_and_others_serve(program, ranks, said, tmp_path):
    file = str(PROGRAMS / f"parameter_server_{program}.py")
    result = run_job(["-m", "mpistrat", "run", file], ranks, 150, cwd=tmp_path).check()
    assert result.ranks[0].stdout.splitlines() == SHOWN[program]
    assert [output.stdout for output in result.ranks[1:]] == [""] * (ranks - 1)
    assert said in result.ranks[0].stderr


@repeats()
def test_an_evaluator_goes_its_own_way(tmp_path):
    file = str(PROGRAMS / "parameter_server_roles.py")
    options = ["--ps", "1", "--evaluators", "1"]
    result = run_job(["-m", "mpistrat", "run", *options, file], 4, 150, cwd=tmp_path).check()
    assert result.ranks[0].stdout.splitlines() == SHOWN["roles"]
    assert [output.stdout for output in result.ranks[1:]] == ["", "", "evaluates 0\n"]
