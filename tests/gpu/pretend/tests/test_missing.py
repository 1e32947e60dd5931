"""The README files list the very functions that abort, as they are not implemented."""

import re
import signal

import pytest

from gpu.pretend.build import FOLDER
from gpu.pretend.tests.runtime_job import outcome, run, why_not
from mpistrat.testing.sets import takes_long


def documented(readme):
    """Return the functions that the section of a README names in its table."""
    section = readme.read_text().partition("## Not implemented")[2].partition("\n## ")[0]
    rows = [line.rpartition("| ")[2] for line in section.splitlines() if line.startswith("| ")]
    return re.findall(r"`(\w+)`", " ".join(rows))


def missing(*folders):
    """Return the functions that the sources of some folders say are missing."""
    texts = [file.read_text() for folder in folders for file in sorted(folder.rglob("*.cc"))]
    macros = [re.findall(r"^MISSING\((\w+)\)", text, re.MULTILINE) for text in texts]
    calls = [re.findall(r'pretend::missing\("(\w+)"', text) for text in texts]
    return sorted(name for names in macros + calls for name in names)


HERE = documented(FOLDER / "README.md")


@pytest.mark.parametrize(
    ("readme", "folders"),
    [("README.md", ("runtime", "nccl")), ("cuda/README.md", ("cuda",))],
)
def test_the_list_is_that_of_the_sources(readme, folders):
    found = documented(FOLDER / readme)
    assert sorted(found) == missing(*(FOLDER / folder for folder in folders))
    assert len(found) > 10


@takes_long()
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_each_says_its_name_and_aborts():
    for name in HERE:
        code, output = outcome("missing.call", NAMES=name)
        assert code == -signal.SIGABRT, output
        assert re.search(rf"{name}\b.* (does not exist here|is not part of)", output)


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_each_returns_an_error_where_that_is_wanted():
    output = run("missing.call", NAMES=" ".join(HERE), PRETEND_MISSING="error")
    for name in HERE:
        assert re.search(rf"{name} returned (801|5)$", output, re.MULTILINE)
