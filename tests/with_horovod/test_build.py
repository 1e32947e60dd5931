"""`mpistrat horovod build` for real: into an environment made for it, on top of this one.

The wheel is the one in the cache. Where there is none it is compiled, which takes minutes, if
``MPISTRAT_TESTS_ALL=1``; `.ci/run` has it compiled by the command before.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from mpistrat import config
from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.examination import Toolchain, examine
from mpistrat.horovod_build.wheel_cache import cached_wheel
from mpistrat.testing.sets import takes_long, with_all

COMPILES_S, TAKES_IT_S = 1500, 300
REAL_CACHE = config.cache_folder()
pytestmark = [pytest.mark.deadline(COMPILES_S + TAKES_IT_S), takes_long(unit="file")]


def toolchain() -> Toolchain:
    try:
        return examine().require()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def limit_s():
    """Return the time that a build may take here; skip where it would take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_CACHE", str(REAL_CACHE))
        wheel = cached_wheel(toolchain()).find()
    if wheel is None and not with_all():
        pytest.skip(f"no wheel for this environment in {REAL_CACHE}; MPISTRAT_TESTS_ALL=1 builds")
    return TAKES_IT_S if wheel else COMPILES_S


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return the Python of a new environment that sees the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    below = folder / "lib" / version / "site-packages" / "below.pth"
    here = sysconfig.get_path("purelib")
    below.write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run Python where mpi4py finds the library, and the command mpirun, of this environment."""
    found = toolchain().mpi
    places = [str(found.wrapper.parent), os.environ["PATH"]]
    env = {**os.environ, "PATH": os.pathsep.join(places), "MPISTRAT_CACHE": str(REAL_CACHE)}
    if found.library is not None:
        env["MPI4PY_LIBMPI"] = str(found.library)
    return subprocess.run(
        [str(python), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=env,
    )


@pytest.fixture(scope="module")
def built(environment, limit_s):
    """Build and install Horovod there; return what the command said."""
    return run(environment, "-m", "mpistrat", "horovod", "build", timeout_s=limit_s)


def test_it_is_built_installed_and_tested(built):
    assert built.returncode == 0, built.stderr
    assert "rank 0 of 2: its sums on the CPU are right" in built.stdout
    steps = [line.partition(":")[0] for line in built.stderr.splitlines()]
    assert steps[0] == "looking for compilers and libraries"
    assert steps[-1] == "testing it on 2 ranks"


def test_it_is_in_the_new_environment_alone(built, environment):
    said = run(environment, "-c", "import horovod, sys; print(sys.prefix, horovod.__file__)")
    prefix, file = said.stdout.split()
    assert Path(file).is_relative_to(prefix)


def test_a_second_time_compiles_nothing(built, environment):
    wheel = run(environment, "-m", "mpistrat", "horovod", "build", "--wheel-only")
    assert wheel.returncode == 0, wheel.stderr
    assert "its wheel is in the cache" in wheel.stderr
    assert Path(wheel.stdout.strip()).is_file()


def test_check_knows_it(built, environment):
    said = run(environment, "-m", "mpistrat", "horovod", "check")
    assert said.returncode == 0, said.stdout
    assert "Horovod is installed, from this wheel." in said.stdout


def test_its_library_is_looked_for_beside_python_first(built, environment):
    said = run(environment, "-c", "import horovod; print(horovod.__file__)")
    (library,) = Path(said.stdout.strip()).parent.glob("tensorflow/mpi_lib*.so")
    assert b"$ORIGIN/../../../.." in library.read_bytes()
