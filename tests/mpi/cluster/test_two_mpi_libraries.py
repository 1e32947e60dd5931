"""Other MPI libraries than mpi4py's are loaded, too: its own is the one that is started."""

import shutil
import sys
from pathlib import Path

import pytest

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

PROGRAM = """
import ctypes, sys
own, *others = sys.argv[1:]
ctypes.CDLL(own)  # mpi4py asks for it by its name, and gets the one that is there already
from mpistrat.cluster.mpi_start import timed_start
timed_start.load()
for other in others:
    ctypes.CDLL(other)
world = timed_start.start(20.0)
paths = [str(path) for path in timed_start.loaded_libraries(["libmpi."])]
assert {own, *others} <= {*paths}, paths
from mpi4py import MPI
assert MPI.Is_initialized()
print(world.allreduce(1))
assert timed_start.finish(20.0)
"""

LIBRARY = """
from mpistrat.cluster.mpi_start import timed_start
timed_start.load()
print(*timed_start.loaded_libraries(["libmpi."]))
"""


def loaded() -> Path:
    """Return the file of the library that mpi4py loads here."""
    result = run_job(["-c", LIBRARY], 1).check()
    return Path(result.ranks[0].stdout.strip())


@takes_long()
@pytest.mark.skipif(sys.platform != "linux", reason="libraries are looked up in /proc")
def test_the_library_of_mpi4py_is_started(tmp_path):
    library = loaded()
    copies = []
    for folder in ("m", "a", "z"):  # others have paths before and behind its own
        (tmp_path / folder).mkdir()
        copies.append(shutil.copy(library, tmp_path / folder / library.name))
    # PyPI's libraries have what they need in a folder beside them, which a copy does not find.
    folders = [library.parent, library.parent / "mpich", library.parent / "openmpi"]
    needs = {"LD_LIBRARY_PATH": ":".join(map(str, folders))}
    result = run_job(["-c", PROGRAM, *map(str, copies)], 2, env=needs).check()
    assert [rank.stdout for rank in result.ranks] == ["2\n", "2\n"]
