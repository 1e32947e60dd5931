"""Build the parts that need a compiler; everything else is in pyproject.toml.

The kernels (kernels/) become the extension module ``mpistrat._kernels``. Where they cannot be
built (no C++ compiler), the package installs all the same and uses MPI alone; it says so when it
runs. ``MPISTRAT_BUILD_KERNELS=0`` leaves them out, ``=1`` makes their failure an error.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

# Without contraction every instruction set gives the same bits (kernels/include/mpistrat/simd.h).
_COMPILE = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-strict-aliasing"]


def _kernels() -> Extension:
    import nanobind
    import numpy as np

    binding = Path(nanobind.source_dir())
    headers = sorted(str(path) for path in Path("kernels").glob("**/*.h"))
    return Extension(
        "mpistrat._kernels",
        sources=sorted(str(path) for path in Path("kernels").glob("[!t]*/*.cc")),
        depends=headers,
        include_dirs=[
            "kernels/include",
            nanobind.include_dir(),
            str(binding),
            str(binding.parent / "ext" / "robin_map" / "include"),
            np.get_include(),
        ],
        define_macros=[("NDEBUG", None), ("NB_COMPACT_ASSERTIONS", None)],
        extra_compile_args=_COMPILE,
        extra_link_args=["-pthread"],
        language="c++",
        optional=os.environ.get("MPISTRAT_BUILD_KERNELS") != "1",
    )


wanted = os.environ.get("MPISTRAT_BUILD_KERNELS") != "0"
setup(ext_modules=[_kernels()] if wanted else [])
