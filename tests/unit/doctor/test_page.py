"""The table of docs/doctor.md has the checks, in their order, with their sources."""

import re
from pathlib import Path

import mpistrat
from mpistrat.doctor.checks import CHECKS

ROOT = Path(mpistrat.__file__).parents[1]
PAGE = (ROOT / "docs" / "doctor.md").read_text()


def test_the_page_has_all_checks_and_no_others():
    table = PAGE.partition("<!-- checks -->")[2].partition("<!-- end of checks -->")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| .+ \| .+ \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(check.name, check.source) for check in CHECKS]


def test_each_check_is_a_file_of_its_name():
    folder = ROOT / "mpistrat" / "doctor" / "checks"
    files = {
        f"{file.parent.name}.{file.stem}"
        for file in folder.glob("*/*.py")
        if file.name != "__init__.py"
    }
    assert files == {check.name for check in CHECKS}


def test_every_file_is_checked_for_sources():
    assert all(check.source for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
