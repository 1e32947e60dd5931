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


def seen(text: str) -> str:
    """Return what a reader of the page sees: no comments, no targets of links, no table rules."""
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"^\|[-|]+\|\n", "", text, flags=re.MULTILINE)


def prose_of(text: str) -> str:
    """Return what is seen of a text without its blocks of code."""
    return seen(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def test_no_line_is_wider_than_a_terminal() -> None:
    assert [line for line in README.read_text().splitlines() if len(line) > 120] == []


def test_the_first_screen_says_what_it_is_and_how_to_try_it() -> None:
    """Up to the table: one sentence, a program's changes, the command to train, and its output."""
    first, table, _ = README.read_text().partition("| strategy |")
    assert table
    assert len(seen(first).splitlines()) <= 35
    assert len(prose_of(first).split()) <= 60
    assert [part in first for part in ("```diff", "<!-- train command -->")] == [True, True]


def test_it_is_read_in_some_minutes() -> None:
    """At 200 words a minute; no section is longer than half a screen of prose."""
    text = README.read_text()
    assert len(prose_of(text).split()) <= 900
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        assert len(prose_of(section).split()) <= 150, section.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a <!-- not\nseen --> b", 2),
        ("[a b](c.md) d", 3),
        ("a\n\n```bash\nx y\n```\n\nb", 2),
        ("| a |\n|---|\n| b |", 6),
    ],
)
def test_words_are_counted_as_they_are_seen(text: str, words: int) -> None:
    assert len(prose_of(text).split()) == words
