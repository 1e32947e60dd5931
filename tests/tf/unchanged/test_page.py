"""The blocks of docs/from-tf-distribute.md print what they say, in one process and on ranks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.placement import slower
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(300)

PAGE = (Path(__file__).parents[3] / "docs" / "from-tf-distribute.md").read_text()
BLOCKS = re.findall(r"^```python ([a-z ]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RUN = ["-m", "mpistrat", "run"]


def program(*kinds):
    return "\n".join(text for kind, text in BLOCKS if kind in kinds)


def says(code, rank=None):
    """Return the lines that the comments say: of one process, or of a rank."""
    found = []
    for comment in re.findall(r"#> (.+)$", code, re.MULTILINE):
        alone, _, on_ranks = comment.partition(" ; ")
        by_rank = (on_ranks or alone).split(" | ")
        found.append(alone if rank is None else by_rank[rank if len(by_rank) > 1 else 0])
    return [line for line in found if line != "-"]


@pytest.fixture
def differences(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(program("as it is", "changed"))
    return path


@takes_long()
def test_in_one_process(differences, tmp_path):
    done = subprocess.run(
        [sys.executable, differences.name],
        capture_output=True,
        text=True,
        timeout=100 * slower(),
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == says(differences.read_text())


@takes_long()
def test_on_ranks(differences, tmp_path):
    result = run_job([*RUN, differences.name], 2, 100, cwd=tmp_path).check()
    for rank, output in enumerate(result.ranks):
        assert output.stdout.splitlines() == says(differences.read_text(), rank), output.stderr


@takes_long()
def test_servers(tmp_path):
    (tmp_path / "train.py").write_text(program("servers"))
    result = run_job([*RUN, "train.py"], 3, 100, cwd=tmp_path).check()
    assert [output.stdout for output in result.ranks] == ["chief 45.0\n", "", ""]
    assert says(program("servers")) == ["chief 45.0"]


def test_all_blocks_are_run():
    assert {kind for kind, _ in BLOCKS} == {"as it is", "changed", "servers"}
    assert len(BLOCKS) == PAGE.count("```python")
