"""The files and folders that the documentation names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = r"`([\w./-]+(?:\.(?:py|h|cc|md|toml)|/))`"
LINK = r"\]\(([\w./-]+)\)"
NOT_OURS = {"utils.py"}  # which is not to be


def is_there(name):
    """Tell whether a path is one of the repository, or the end of one within a package."""
    if any((folder / name).exists() for folder in (ROOT, ROOT / "mpistrat", ROOT / "docs")):
        return True
    tops = (ROOT / top for top in ("mpistrat", "kernels", "tests"))
    return any(found for top in tops for found in top.rglob(name.rstrip("/")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_files(page):
    text = page.read_text()
    names = set(re.findall(FILE, text)) - NOT_OURS
    assert [name for name in sorted(names) if not is_there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    links = re.findall(LINK, page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_architecture_leads_to_all_of_its_pages():
    links = re.findall(LINK, (ROOT / "docs" / "architecture.md").read_text())
    pages = [f"architecture/{page.name}" for page in (ROOT / "docs" / "architecture").glob("*")]
    assert pages
    assert sorted(set(pages) - set(links)) == []


def test_the_glossary_is_short_and_in_order():
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)[1:]
    assert words == sorted(words)
    assert 0 < len(words) <= 30
