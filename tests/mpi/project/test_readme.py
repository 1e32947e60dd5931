"""The examples of the README run under mpirun, and print what the README says, once."""

import re
from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job

README = Path(__file__).parents[3] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n(.*?)(?=\n#|\n```|\Z)", README.read_text(), re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "mpistrat.tensorflow" not in block[0]]  # tests/tf
SAYS = r"`mpirun -n (\d+) python example\.py`\s+prints[^`]*`([^`]+)`"


@pytest.mark.parametrize(("code", "prose"), EXAMPLES)
def test_example_prints_what_the_readme_says(code: str, prose: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    promises = re.findall(SAYS, prose)
    assert "3" in dict(promises)
    for ranks, text in promises:
        result = run_job(["example.py"], int(ranks), cwd=tmp_path).check()
        assert [output.stdout.splitlines() for output in result.ranks] == [
            [text],
            *[[]] * (int(ranks) - 1),
        ]
