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
    """Find TensorFlow where Python would, with a loader that exchanges names in it."""

    def __init__(self, share: CoreShare | None) -> None:
        self._share = share

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of TensorFlow; None of other modules, and where it is not installed."""
        found = PathFinder.find_spec(name, path, target) if name == _NAME else None
        if found is not None:
            found.loader = _Loader(self, self._share)  # type: ignore[assignment]
        return found


class _Loader:
    """Load TensorFlow by another import, which is Python's own, and exchange names then."""

    def __init__(self, finder: _Finder, share: CoreShare | None) -> None:
        self._finder, self._share = finder, share
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return TensorFlow, loaded and with its names exchanged."""
        sys.meta_path.remove(self._finder)
        # It imports TensorFlow itself, first of all, and quietly on ranks other than 0.
        importlib.import_module(f"{_OURS}.unchanged_programs.stand_in_modules").install()
        if self._share is not None:
            # The program may be using TensorFlow before it makes a strategy, which is too late.
            importlib.import_module(f"{_OURS}.thread_pools").set_pools(self._share)
        module = sys.modules[_NAME]
        self._spec = module.__spec__
        return module

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
