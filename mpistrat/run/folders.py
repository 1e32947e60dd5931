"""Let the ranks of a job make the same folder at once, as programs for one process do.

Such a program looks whether a folder is there, and makes it if not. On several ranks another rank
may make it in between; then the call does nothing instead of failing.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["let_ranks_share"]

_START_S = 10.0  # by which other ranks may have begun earlier, or a file server's clock be late
_MAKERS = ("os", "pathlib")  # their functions make folders by os.mkdir for whoever calls them


def let_ranks_share() -> None:
    """Change ``os.mkdir``, which ``os.makedirs`` and ``Path.mkdir`` call. **Local.**

    Folders that are older than the job are an error as before, and so are all in the standard
    library's own calls: ``tempfile`` looks for a name that nobody has.
    """
    os.mkdir = _shared(os.mkdir, time.time() - _START_S)


def _shared(mkdir: Callable[..., None], start: float) -> Callable[..., None]:
    @wraps(mkdir)
    def make(path: Any, *args: Any, **kwargs: Any) -> None:
        try:
            mkdir(path, *args, **kwargs)
        except FileExistsError:
            if "dir_fd" in kwargs or _is_for_library() or not _is_new_folder(path, start):
                raise

    return make


def _is_new_folder(path: Any, start: float) -> bool:
    found = os.stat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_ctime >= start


def _is_for_library() -> bool:
    """Whether a module of the standard library wants the folder for itself."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _MAKERS:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__")).partition(".")[0]
    return name in sys.stdlib_module_names and name != "__main__"
