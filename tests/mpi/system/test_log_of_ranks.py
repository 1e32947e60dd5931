"""The log speaks on the ranks of the job it was asked for, whatever communicators there are."""

from pathlib import Path

from mpistrat.testing.launcher import run_job

REVERSED = """
import mpistrat
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.system.log import get_logger
world = MPI.COMM_WORLD
part = world.Split(0, -world.rank)
with Communicator(part) as comm:
    get_logger("test").warning("of rank %d", world.rank)
part.Free()
"""


def test_communicators_of_other_ranks_change_nothing() -> None:
    result = run_job(["-c", REVERSED], 2, 40.0).check()
    for rank in result.ranks[1:]:
        assert rank.stderr == "", rank.stderr
    line = result.ranks[0].stderr
    assert line.startswith("[mpistrat 0/2 "), line
    assert line.endswith("mpistrat.test: of rank 0\n"), line


def test_a_name_that_looks_like_a_setting_is_told_once() -> None:
    program = "import mpistrat; mpistrat.MirroredStrategy()"
    result = run_job(["-c", program], 2, 40.0, env={"MPISTRAT_TIMOUT": "3"}).check()
    assert result.ranks[1].stderr == ""
    line = result.ranks[0].stderr
    assert line.startswith("[mpistrat 0/2 "), line
    assert line.endswith("MPISTRAT_TIMOUT is no setting of mpistrat; is it MPISTRAT_TIMEOUT?\n")


def test_a_timeline_without_records_is_told(tmp_path: Path) -> None:
    program = "import mpistrat; mpistrat.MirroredStrategy()"
    path = tmp_path / "timeline.json"
    env = {"MPISTRAT_TIMELINE": str(path), "MPISTRAT_CHECKS": "0"}
    result = run_job(["-c", program], 2, 40.0, env=env).check()
    assert "MPISTRAT_TIMELINE is not written with MPISTRAT_CHECKS=0" in result.ranks[0].stderr
    assert result.ranks[1].stderr == ""
    assert not path.exists()
