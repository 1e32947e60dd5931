"""``mpistrat run`` under mpirun: errors of its command line, and what it does not warn of."""

from pathlib import Path

import pytest

from mpistrat.testing.launcher import JobResult, run_job

PROGRAM = "import mpistrat; mpistrat.MirroredStrategy(); print('done')"


def run(*arguments: str, ranks: int = 2) -> JobResult:
    return run_job(["-m", "mpistrat", "run", *arguments], ranks, timeout_s=30)


def test_its_own_tf_config_is_none_that_was_set_but_not_used() -> None:
    result = run("-c", PROGRAM).check()
    assert [rank.stdout for rank in result.ranks] == ["done\n", "done\n"]
    assert "TF_CONFIG" not in result.output


def test_too_few_ranks_for_parameter_servers() -> None:
    result = run("--ps", "5", "-c", PROGRAM)
    assert result.returncode == 2, result.output
    assert result.output.count("--ps 5 needs 7 ranks or more") == 1
    assert "done" not in result.output


def test_a_missing_program_is_told_once(tmp_path: Path) -> None:
    result = run(str(tmp_path / "missing.py"))
    assert result.returncode == 2, result.output
    assert result.output.count("cannot open") == 1
    assert "cannot open" in result.ranks[0].stderr


def test_a_program_that_one_rank_lacks_is_told_by_that_one(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    code = (
        "import sys\n"
        "from mpistrat.cluster.launcher.launch_variables import expected_rank\n"
        "from mpistrat.run.command import main\n"
        "main([sys.argv[1] + 'x' * expected_rank()[1]])"
    )
    result = run_job(["-c", code, str(file)], 2, timeout_s=30)
    assert result.returncode != 0
    assert "cannot open" in result.ranks[1].stderr


@pytest.mark.parametrize("ps", ["1", "0"])
def test_two_ranks_may_have_one_parameter_server(ps: str) -> None:
    run("--ps", ps, "-c", PROGRAM).check()
