"""The operation ``MpistratGpuCall``: pass the GPU's memory of tensors to Python without a copy.

It does for tensors on a GPU what ``MpistratCall`` does for those of the host. Python gets arrays
of CuPy, with the GPU as the current one, and a current stream that begins behind the work that the
tensors come from. kernels/tf/gpu_call_op.cc is compiled when it is first used.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from mpistrat.collectives.arrays.gpu_streams import foreign_stream
from mpistrat.errors import BackendUnavailableError
from mpistrat.tensorflow.graph.call_steps import (
    CallSeen,
    Rest,
    Shape,
    Step,
    UnknownKeyError,
    begin_by,
    finish,
    shapes_of,
)
from mpistrat.tensorflow.graph.native_library import opened
from mpistrat.tensorflow.graph.native_op import run

__all__ = ["GpuCallback", "GpuMemory", "call", "load", "register", "use", "why_not"]

GpuCallback: TypeAlias = Callable[[int, "GpuMemory"], Rest | None]
_OVER_HOST = "TensorFlow's tensors on GPUs are reduced over the host"


class GpuMemory:
    """The memory of a call's tensors on a GPU; it is TensorFlow's, until the call is over."""

    def __init__(self, seen: CallSeen) -> None:
        self._device, self._stream = int(seen.device), int(seen.stream or 0)
        self._sources, self._results = seen.inputs[: seen.num], seen.outputs[: seen.num]
        self._shapes = shapes_of(seen)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU, and the stream of the call, the current ones of this thread."""
        import cupy

        device = cupy.cuda.Device(self._device)
        if threading.current_thread() is not threading.main_thread():
            # For good: to go back to GPU 0, perhaps another rank's, would open a context there.
            device.use()
        with device, foreign_stream(self._stream, self._device):
            yield

    def arrays(self, dtypes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return arrays of the tensors, and of the results."""
        return self._arrays(self._sources, dtypes), self._arrays(self._results, dtypes)

    def _arrays(self, addresses: Sequence[int], dtypes: Sequence[Any]) -> list[Any]:
        return list(map(self._array, addresses, dtypes, self._shapes))

    def _array(self, address: int, dtype: Any, shape: Shape) -> Any:
        import cupy

        nbytes = cupy.dtype(dtype).itemsize
        for length in shape:
            nbytes *= length
        if nbytes == 0:
            return cupy.empty(shape, dtype)
        memory = cupy.cuda.UnownedMemory(address, nbytes, self, self._device)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


def load() -> ModuleType | None:
    """Return the module of the compiled operation; None where it cannot be had. **Local.**"""
    with _lock:
        return _load()


def why_not() -> str | None:
    """Return what this process lacks to hand tensors on GPUs to CuPy, or None. **Local.**"""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        return f"CuPy is missing ({error}); install mpistrat[cuda] or mpistrat[rocm]"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no GPU ({error})"
    if not count:
        return "CuPy finds no GPU"
    return None if load() is not None else "the operation for them cannot be had here"


def use(index: int) -> None:
    """Make a GPU the current one of this thread, for CuPy. **Local.**"""
    import cupy

    cupy.cuda.Device(index).use()


def register(callback: GpuCallback) -> None:
    """Set what is called with the key and the memory of each call, on any thread. **Local.**

    It returns None or what is left to do, and raises as that of `native_op.register`.
    """
    _callbacks[:] = [callback]


def call(key: int, tensors: Sequence[Any]) -> list[Any]:
    """Run the callback on tensors of the GPU that is TensorFlow's current device.

    Returns
    -------
    list of tf.Tensor
        As many, of the same dtypes and shapes, on that GPU.

    Raises
    ------
    BackendUnavailableError
        There is no compiled operation here; see :func:`load`.
    tf.errors.OpError
        The callback raised something; inside a ``tf.function``, it is raised by that.
    """
    module = load()
    if module is None:
        raise BackendUnavailableError("the operation for tensors on GPUs is not available here")
    return run(module.mpistrat_gpu_call, key, tensors)


_lock = threading.Lock()
_callbacks: list[GpuCallback] = []  # one at most


def _started(seen: CallSeen) -> Rest | None:
    if not _callbacks:
        raise UnknownKeyError
    return _callbacks[0](seen.key, GpuMemory(seen))


_STEPS = (Step(begin_by(_started)), Step(finish))  # kept: the operation has their addresses


def platform() -> str:
    """Return TensorFlow's name of the platform that CuPy is for."""
    import cupy

    return "ROCM" if cupy.cuda.runtime.is_hip else "CUDA"


@functools.cache
def _load() -> ModuleType | None:
    found = opened("gpu_call_op.cc", _OVER_HOST)
    if found is None:
        return None
    module, library = found
    library.mpistrat_tf_register_on_gpu(*_STEPS, platform().encode())
    return module
