"""Run a command on CuPy's CUDA branch: ``python tests/gpu/pretend/cuda/run.py COMMAND ...``.

``python`` and ``mpirun`` are those of the environment that install.py has made. The variables of
pretended GPUs (../README.md) work as they do with the ROCm wheel.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from gpu.pretend import run
from gpu.pretend.cuda.install import REPOSITORY, environment_of, headers_of, installed, why_not
from gpu.pretend.cuda.libraries import build_libraries


def environment() -> dict[str, str]:
    """Return the environment of programs that use CuPy's CUDA branch on pretended GPUs."""
    folder = installed()
    given = run.environment(build_libraries(headers_of(folder)))
    given["PATH"] = run.before(str(environment_of(folder) / "bin"), given["PATH"])
    given["PYTHONPATH"] = run.before(str(REPOSITORY), given.get("PYTHONPATH"))
    # Where CuPy finds the headers of kernels: ours.
    given["CUDA_PATH"] = given["CUDA_HOME"] = str(Path(__file__).parent)
    given["CUPY_ACCELERATORS"] = ""  # CUB's kernels are NVIDIA's machine code
    return given


def main() -> None:
    """Replace this process by the command."""
    command, missing = sys.argv[1:], why_not()
    if not command:
        raise SystemExit(__doc__)
    if missing:
        raise SystemExit(missing)
    given = environment()
    os.environ["PATH"] = given["PATH"]  # where the command is looked for
    os.execvpe(command[0], command, given)


if __name__ == "__main__":
    main()
