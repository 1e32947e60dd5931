"""Build the parts that need a compiler; everything else is in pyproject.toml.

The kernels (kernels/) become the extension module ``mpistrat._kernels``. Where they cannot be
built (no C++ compiler), the package installs all the same and uses MPI alone; it says so when it
runs. ``MPISTRAT_BUILD_KERNELS=0`` leaves them out, ``=1`` makes their failure an error.

What is compiled on the user's machine, when it is first used, goes into the package as source.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

_SOURCES = ["kernels/tf/*.[ch]*", "kernels/cuda/*.cu*"]  # what a wheel has in mpistrat/ too
_SOURCES += [f"slurm/**/*.{ending}" for ending in ("toml", "j2", "md")]
# Without contraction every instruction set gives the same bits (kernels/include/mpistrat/simd.h).
_COMPILE = ["-std=c++17", "-O3", "-ffp-contract=off", "-fno-strict-aliasing"]


def _kernels() -> Extension:
    import nanobind
    import numpy as np

    binding = Path(nanobind.source_dir())
    headers = sorted(str(path) for path in Path("kernels").glob("**/*.h"))
    return Extension(
        "mpistrat._kernels",
        sources=sorted(str(path) for path in Path("kernels").glob("[!t]*/**/*.cc")),
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


class _InParallel(build_ext):
    """Compile several sources at a time, which setuptools does for whole extensions only."""

    def build_extension(self, ext: Extension) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: list[str], output_dir: str, **options: object) -> list[str]:
            for folder in {str(Path(output_dir, source).parent) for source in sources}:
                self.mkpath(folder)  # or two threads may try to

            def compile_one(source: str) -> list[str]:
                return compile_some([source], output_dir=output_dir, **options)

            try:
                with ThreadPoolExecutor(_num_compilers()) as pool:
                    return [name for names in pool.map(compile_one, sources) for name in names]
            except (CompileError, OSError, RuntimeError):  # too little memory, too many threads,
                return compile_some(sources, output_dir=output_dir, **options)  # or a real error

        self.compiler.compile = compile_all
        super().build_extension(ext)


def _num_compilers() -> int:
    may_use = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(may_use or 1, 8)  # each takes up to 0.5 GB of memory, and login nodes are shared


class _WithSources(build_py):
    """Put kernels/{tf,cuda}/ and slurm/ into a wheel's mpistrat/; a checkout has them in place."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source in sorted(path for pattern in _SOURCES for path in Path().glob(pattern)):
            target = Path(self.build_lib, "mpistrat", source)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


wanted = os.environ.get("MPISTRAT_BUILD_KERNELS") != "0"
setup(
    ext_modules=[_kernels()] if wanted else [],
    cmdclass={"build_ext": _InParallel, "build_py": _WithSources},
)
