"""Compile and load the operations of kernels/tf against the TensorFlow that is installed.

That is done when they are first used (15 s), since a compiled operation loads in that very version
only; the result is kept for later processes. Those of CPU devices are one library: if one of them
does not compile, none is there.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from mpistrat import config
from mpistrat.errors import BackendUnavailableError
from mpistrat.system import compile_on_demand
from mpistrat.system.log import get_logger, warn_once

__all__ = ["opened", "operations"]

_LOG = get_logger(__name__)
_WITHOUT = (
    "collectives of TensorFlow go through tf.numpy_function, with copies; ranks do not compare the"
    " data that they read; and Keras copies arrays on each rank"
)
_lock = threading.Lock()


def operations() -> tuple[ModuleType, Any] | None:
    """Compile and load those of CPU devices, once a process, as :func:`opened` does. **Local.**"""
    # functools.cache alone would let two threads compile.
    with _lock:
        return _operations()


@functools.cache
def _operations() -> tuple[ModuleType, Any] | None:
    return opened("operations.cc", _WITHOUT)


def opened(name: str, otherwise: str) -> tuple[ModuleType, Any] | None:
    """Compile and load a file of kernels/tf; return its operations and functions. **Local.**

    None without a word if ``MPISTRAT_TF_NATIVE=0``, else with a warning that says why, and what
    happens `otherwise`.
    """
    if not config.tf_native():
        return None
    try:
        file = str(_compiled(_source(name)))
        # The same library twice: TensorFlow registers its operations, ctypes calls its functions.
        return tf.load_op_library(file), ctypes.CDLL(file)
    except (BackendUnavailableError, OSError, tf.errors.OpError) as error:
        warn_once(_LOG, f"native operation {name}", f"{otherwise}: {error}")
        return None


def _compiled(source: Path) -> Path:
    flags = [*tf.sysconfig.get_compile_flags(), "-O2", "-DNDEBUG", "-w"]
    versions = [tf.version.VERSION, tf.version.GIT_VERSION]
    machine = [platform.machine(), *platform.libc_ver()]
    return compile_on_demand.shared_object(
        source, [*flags, *tf.sysconfig.get_link_flags()], " ".join(versions + machine)
    )


def _source(name: str) -> Path:
    """Find a file: in the package if it was installed, beside it in a checkout."""
    package = Path(config.__file__).parent
    places = [folder / "kernels" / "tf" / name for folder in (package, package.parent)]
    return next((place for place in places if place.exists()), places[0])
