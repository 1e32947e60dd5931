"""Run a command on pretended GPUs: ``python tests/gpu/pretend/run.py COMMAND ARGUMENT...``.

The libraries are built if need be, and put before any others of the same names. The interpreter
that runs the command has to be that of an environment with cupy-rocm-7-0. Variables: README.md.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpu.pretend.build import FOLDER, build


def environment(libraries: Path | None = None) -> dict[str, str]:
    """Return the environment of programs that find the pretended GPUs.

    Parameters
    ----------
    libraries
        The folder that has them; default: those for CuPy's ROCm wheel, built if need be.
    """
    folder, given = libraries or build(), dict(os.environ)
    given["LD_LIBRARY_PATH"] = before(str(folder), given.get("LD_LIBRARY_PATH"))
    given["PATH"] = before(str(FOLDER / "bin"), given.get("PATH"))
    given["ROCM_HOME"] = str(FOLDER)
    # CuPy keeps compiled kernels: those of this build must not be mixed with others.
    given.setdefault("CUPY_CACHE_DIR", str(folder / "kernels"))
    given.setdefault("PRETEND_JOB", f"{os.getpid()}-{time.time_ns()}")  # for PRETEND_EXCLUSIVE
    return given


def before(first: str, rest: str | None) -> str:
    """Return a list of folders with one more, which comes first."""
    return os.pathsep.join(filter(None, [first, rest]))


def main() -> None:
    """Replace this process by the command."""
    command = sys.argv[1:]
    if not command:
        raise SystemExit(__doc__)
    given = environment()
    os.execvpe(command[0], command, given)


if __name__ == "__main__":
    main()
