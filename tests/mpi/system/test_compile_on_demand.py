"""Sources that are compiled on first use, by ranks that all want the same one at once."""

import shutil
from pathlib import Path

import pytest

from helpers.strategy.failing_job import run
from mpistrat.testing.sets import takes_long, with_all

BODY = """
from pathlib import Path
from mpistrat.system import compile_on_demand
print(compile_on_demand.shared_object(Path({source!r}), [], "").exists())
"""

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="found no C++ compiler"
)


@takes_long()
@pytest.mark.parametrize("ranks", [2, 3] if with_all() else [3])
def test_one_line_of_a_job_says_that_the_compiler_runs(tmp_path: Path, ranks: int) -> None:
    source = tmp_path / "answer.cc"
    source.write_text('extern "C" int answer() { return 42; }\n')
    body = BODY.format(source=str(source))
    for count in (1, 0):  # the second job finds it
        result = run(body, ranks, MPISTRAT_CACHE=str(tmp_path / "cache")).check()
        assert [one.stdout for one in result.ranks] == ["True\n"] * ranks
        assert sum("compiling answer.cc" in one.stderr for one in result.ranks) == count
