"""The examples of the README run in one process, and print what the README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpistrat.demo import __file__ as demo_file

README = Path(__file__).parents[3] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n(.*?)(?=\n#|\n```|\Z)", README.read_text(), re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "mpistrat.tensorflow" not in block[0]]  # tests/tf
SAYS = r"`python example\.py`\s+prints[^`]*`([^`]+)`"


def test_there_are_examples_that_say_what_they_print() -> None:
    assert EXAMPLES
    for _, prose in EXAMPLES:
        assert re.search(SAYS, prose)


@pytest.mark.parametrize(("code", "prose"), EXAMPLES)
def test_example_prints_what_the_readme_says(code: str, prose: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == re.findall(SAYS, prose)


def test_first_example_is_the_quickstart_module() -> None:
    """Only its docstring comes before."""
    module = Path(demo_file).with_name("quickstart.py").read_text()
    assert module.partition("\n\n")[2] == EXAMPLES[0][0]


def test_readme_is_short_enough_to_be_read() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120
