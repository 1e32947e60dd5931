"""docs/from-horovod.md: both sides of each call print what the page says, on two ranks.

Horovod's side is skipped where it is not installed; ours runs always.
"""

import importlib.util
import json

import pytest

from helpers.horovod.guide import PAGE, RESULT, SIDES, pairs
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

PAIRS = list(pairs(PAGE.read_text()))
DEADLINE_S = 180
pytestmark = [pytest.mark.deadline(DEADLINE_S + 20), takes_long(unit="file")]
TIMELINES = {"horovod": "HOROVOD_TIMELINE", "mpistrat": "MPISTRAT_TIMELINE"}


def is_installed(name):
    """Tell whether a package is there; a folder of tests that has its name is none."""
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


@pytest.fixture(scope="module", params=SIDES)
def job(request, tmp_path_factory):
    """Run all blocks of a side; return the side, its folder, and the job's result."""
    side = request.param
    if side == "horovod" and not is_installed("horovod"):
        pytest.skip("Horovod is not installed; mpistrat horovod build installs it")
    folder = tmp_path_factory.mktemp(side)
    env = {TIMELINES[side]: str(folder / "timeline.json")}
    program = ["-m", "helpers.horovod.guide", side]
    return side, folder, run_job(program, 2, DEADLINE_S, env, folder).check()


def printed(output, number):
    lines = [line for line in output.stdout.splitlines() if line.startswith(RESULT)]
    return dict(json.loads(line.removeprefix(RESULT)) for line in lines)[number]


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[pair.name for pair in PAIRS])
def test_a_block_prints_what_the_page_says(job, number):
    side, _, result = job
    for rank, output in enumerate(result.ranks):
        told = output.stderr if side == "mpistrat" else ""  # of Horovod's some raise on purpose
        assert printed(output, number) == PAIRS[number].says(side, rank), told


def test_the_timeline_of_the_page_is_written(job):
    _, folder, result = job
    assert json.loads((folder / "timeline.json").read_text()), result.output
