"""Let native code make the calls of a method, where it can."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

from mpistrat.system.kernels import compiled_module

__all__ = ["with_fast_path"]

F = TypeVar("F", bound=Callable[..., Any])


def with_fast_path(method: F) -> F:
    """Let the kernels make the calls of a method of `CollectiveMethods` in the common case.

    What they do not take goes to the method itself, which is the ``__wrapped__`` of what is
    returned: calls with unusual arrays, or while others are under way (see `FastCalls`). Without
    kernels this is the method itself.
    """
    module = compiled_module()
    if module is None:
        return method
    native: Any = update_wrapper(module.CollectiveMethod(method, method.__name__), method)
    return native  # type: ignore[no-any-return]
