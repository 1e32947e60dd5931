"""Exchange ``tf.distribute`` at the moment when a program imports TensorFlow.

Not before: a program may set variables that TensorFlow and Keras read when they are imported.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["exchange_at_import"]

_NAME = "tensorflow"


class _Finder:
    """Find TensorFlow once, by importing it with all that is to be exchanged in it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of TensorFlow, which is loaded by then; None of other modules."""
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        if PathFinder.find_spec(name, path, target) is None:
            return None  # it is not installed; Python says so
        # It imports TensorFlow itself, first of all, and quietly on ranks other than 0.
        stand_ins = importlib.import_module(
            "mpistrat.tensorflow.unchanged_programs.stand_in_modules"
        )
        stand_ins.install()
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


def exchange_at_import() -> None:
    """Exchange ``tf.distribute`` once TensorFlow is imported, at once if it is. **Local.**"""
    finder: Any = _Finder()
    if _NAME in sys.modules:
        sys.meta_path.insert(0, finder)
        finder.find_spec(_NAME)
    else:
        sys.meta_path.insert(0, finder)
