"""Give TensorFlow's build without GPUs the GPUs that HIP has, pretended or real.

The device is a plug-in of TensorFlow's (tests/gpu/tensorflow/device): its memory and its streams
are HIP's, so that CuPy's ROCm wheel, and mpistrat, see those of TensorFlow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from mpistrat.collectives.backends.gpu.backend import GpuBackend
from mpistrat.collectives.backends.gpu.short_arrays.allreduce import ShortArrays
from mpistrat.system import compile_on_demand

__all__ = ["carried_on_gpus", "gpus_of_tensorflow"]

_SOURCE = Path(__file__).parents[2] / "gpu" / "tensorflow" / "device" / "plugin.cc"
_HIP = "libamdhip64.so.7"


def gpus_of_tensorflow() -> None:
    """Give TensorFlow GPUs, before it does anything; skip the module where there are none."""
    import cupy

    if not cupy.is_available():
        pytest.skip("needs a GPU, or tests/gpu/pretend/run.py", allow_module_level=True)
    if tf.test.is_built_with_cuda() or tf.test.is_built_with_rocm():
        return
    if not cupy.cuda.runtime.is_hip:
        why = "TensorFlow's build without GPUs gets them from HIP only"
        pytest.skip(why, allow_module_level=True)
    _load()


@functools.cache
def _load() -> None:
    from tensorflow.python.framework import load_library

    library = compile_on_demand.shared_object(_SOURCE, _flags(), tf.version.VERSION)
    load_library.load_pluggable_device_library(str(library))


def _flags() -> list[str]:
    # TensorFlow's own headers have warnings. It is built with NDEBUG, which its classes depend on.
    include = ["-isystem", tf.sysconfig.get_include()]
    of_tensorflow = [f for f in tf.sysconfig.get_compile_flags() if not f.startswith("-I")]
    own = ["-O1", "-DNDEBUG", "-Wall", "-Wextra", "-Werror"]
    return [*include, *of_tensorflow, *own, _hip_library(), *tf.sysconfig.get_link_flags()]


def _hip_library() -> str:
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), "/opt/rocm/lib"]
    found = (Path(folder) / _HIP for folder in folders if folder)
    return str(next(file for file in found if file.exists()))


@contextmanager
def carried_on_gpus() -> Iterator[list[int]]:
    """Yield the sizes in bytes of what communicators move on GPUs in the ``with`` block."""
    sizes: list[int] = []

    def noting(move: Any) -> Any:
        def moved(self: GpuBackend, array: Any, *rest: Any, **named: Any) -> Any:
            sizes.append(array.nbytes)
            return move(self, array, *rest, **named)

        return moved

    def noting_result(self: ShortArrays, communicator: Any, array: Any, *rest: Any) -> Any:
        result = at_once(self, communicator, array, *rest)
        if result is not None:
            sizes.append(array.nbytes)
        return result

    at_once = ShortArrays.allreduce
    with pytest.MonkeyPatch.context() as patch:
        for name in ("allreduce", "bcast"):
            patch.setattr(GpuBackend, name, noting(getattr(GpuBackend, name)))
        patch.setattr(ShortArrays, "steps", noting(ShortArrays.steps))
        patch.setattr(ShortArrays, "allreduce", noting_result)
        yield sizes
