"""Load the compiled module with the kernels (kernels/), or say why it is missing."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from mpistrat.errors import BackendUnavailableError

__all__ = ["compiled_module", "kernels", "why_no_kernels"]

_BFLOAT16 = 10  # MpistratDtype of kernels/include/mpistrat/types.h


@lru_cache(maxsize=1)
def _import() -> tuple[ModuleType | None, str]:
    try:
        from mpistrat import _kernels
    except ImportError as error:
        return None, f"mpistrat was installed without its C++ kernels ({error})"
    return _kernels, ""


def compiled_module() -> Any:
    """Return the compiled module as it is imported, or None: it may not know bfloat16 yet."""
    return _import()[0]


@lru_cache(maxsize=1)
def _load() -> tuple[ModuleType | None, str]:
    _kernels, reason = _import()
    if _kernels is None:
        return None, reason
    import ml_dtypes

    _kernels.register_dtype(np.dtype(ml_dtypes.bfloat16).num, _BFLOAT16)
    return _kernels, ""


def kernels() -> Any:
    """Return the compiled module; raise `BackendUnavailableError` where there is none."""
    module, reason = _load()
    if module is None:
        raise BackendUnavailableError(reason)
    return module


def why_no_kernels() -> str | None:
    """Return why the kernels cannot be used by this process, or None."""
    return _load()[1] or None
