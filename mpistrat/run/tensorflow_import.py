"""Exchange ``tf.distribute`` at the moment when a program imports TensorFlow.

Not before: a program may set variables that TensorFlow and Keras read when they are imported. A
program that imports `mpistrat.tensorflow` first gets TensorFlow by that; the exchange then comes
after it, since its own modules need what TensorFlow's names mean.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from mpistrat.cluster.devices.core_shares import CoreShare

__all__ = ["exchange_at_import"]

_NAME = "tensorflow"
_OURS = "mpistrat.tensorflow"


class _Finder:
    """Find TensorFlow and `mpistrat.tensorflow` where Python would; exchange names then."""

    def __init__(self, share: CoreShare | None) -> None:
        self._share = share

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of one of the two; None of others, and where it is not installed."""
        found = PathFinder.find_spec(name, path, target) if name in (_NAME, _OURS) else None
        if found is not None:
            own = found.loader if name == _OURS else None
            found.loader = _Loader(self, self._share, own)  # type: ignore[assignment]
        return found


class _Loader:
    """Load one of the two, and exchange names then.

    Parameters
    ----------
    finder
        Which is not needed any more then.
    share
        The cores for TensorFlow's threads.
    own
        The loader of `mpistrat.tensorflow`; None for TensorFlow, which is loaded by another
        import, Python's own.
    """

    def __init__(self, finder: _Finder, share: CoreShare | None, own: Any) -> None:
        self._finder, self._share, self._own = finder, share, own
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return TensorFlow, loaded and with its names exchanged; None for a new module."""
        sys.meta_path.remove(self._finder)
        if self._own is not None:
            return None
        self._exchange()
        module = sys.modules[_NAME]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give TensorFlow its own spec back, which Python has just replaced; or load the other."""
        if self._own is None:
            module.__spec__ = self._spec
            return
        module.__loader__ = self._own
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._exchange()

    def _exchange(self) -> None:
        # It imports TensorFlow itself, first of all, and quietly on ranks other than 0.
        importlib.import_module(f"{_OURS}.unchanged_programs.stand_in_modules").install()
        if self._share is not None:
            # The program may be using TensorFlow before it makes a strategy, which is too late.
            importlib.import_module(f"{_OURS}.thread_pools").set_pools(self._share)


def exchange_at_import(share: CoreShare | None) -> None:
    """Exchange ``tf.distribute`` once TensorFlow is imported. **Local.**

    Parameters
    ----------
    share
        The cores for TensorFlow's threads, where ranks share them.
    """
    finder: Any = _Finder(share)
    sys.meta_path.insert(0, finder)
