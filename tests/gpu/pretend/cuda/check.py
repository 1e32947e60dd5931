"""Check that our libraries have all that the built CuPy asks for, as ../check.py does for ROCm's.

``python tests/gpu/pretend/cuda/check.py``, after install.py. The exit code says whether it is so.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from gpu.pretend.check import Build, report
from gpu.pretend.cuda.install import environment_of, headers_of, installed, why_not
from gpu.pretend.cuda.libraries import CUDA_PARTS, build_libraries

CUDA = Build(
    {
        "nvrtc": "libnvrtc.so.13",
        "nccl": "libnccl.so.2",
        "__cuda": "libcudart.so.13",
        "cuda": "libcudart.so.13",
    },
    ("cublas", "cufft", "curand", "cusolver", "cusparse"),
    ("libcublas", "libcufft", "libcurand", "libcusolver", "libcusparse"),
    frozenset(CUDA_PARTS),
    "it by install.py",
)


def main() -> int:
    """Print what is lacking; return 1 if anything is."""
    missing = why_not()
    if missing:
        raise SystemExit(missing)
    (site,) = environment_of(installed()).glob("lib/python*/site-packages")
    return report(site, build_libraries(headers_of(installed())), CUDA)


if __name__ == "__main__":
    raise SystemExit(main())
