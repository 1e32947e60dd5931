"""Exchange ``tf.distribute`` at the moment when a program imports TensorFlow.

Not before: a program may set variables that TensorFlow and Keras read when they are imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from mpistrat.cluster.core_shares import CoreShare

__all__ = ["exchange_at_import"]

_NAME = "tensorflow"
_OURS = "mpistrat.tensorflow"


class _Finder:
    """Find TensorFlow once, by importing it with all that is to be exchanged in it."""

    def __init__(self, share: CoreShare | None) -> None:
        self._share = share

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of TensorFlow, which is loaded by then; None of other modules."""
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        if PathFinder.find_spec(name, path, target) is None:
            return None  # it is not installed; Python says so
        # It imports TensorFlow itself, first of all, and quietly on ranks other than 0.
        importlib.import_module(f"{_OURS}.unchanged_programs.stand_in_modules").install()
        if self._share is not None:
            # The program may be using TensorFlow before it makes a strategy, which is too late.
            importlib.import_module(f"{_OURS}.thread_pools").set_pools(self._share)
        return ModuleSpec(name, _Loaded(sys.modules[_NAME]))  # type: ignore[arg-type]


class _Loaded:
    """A loader that gives a module that is loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which Python has just replaced."""
        module.__spec__ = self._spec


def exchange_at_import(share: CoreShare | None) -> None:
    """Exchange ``tf.distribute`` once TensorFlow is imported. **Local.**

    Parameters
    ----------
    share
        The cores for TensorFlow's threads, where ranks share them.
    """
    finder: Any = _Finder(share)
    sys.meta_path.insert(0, finder)
