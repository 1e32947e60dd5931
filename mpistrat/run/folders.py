"""Let the ranks of a job make the same folder at once, as programs for one process do.

Such a program looks whether a folder is there, and makes it if not. On several ranks another rank
may make it in between; then the call does nothing instead of failing.
"""

from __future__ import annotations

import os
import pathlib
import stat
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["let_ranks_share"]

_START_S = 10.0  # by which other ranks may have begun earlier, or a file server's clock be late
_MAKERS = ("os", "pathlib")  # their functions make folders by os.mkdir for whoever calls them


def let_ranks_share(program_folder: str) -> None:
    """Change ``os.mkdir``, which ``os.makedirs`` and ``Path.mkdir`` call. **Local.**

    Folders that are older than the job are an error as before. So are all that libraries make:
    a folder may be their lock, and ``tempfile`` looks for a name that nobody has.

    Parameters
    ----------
    program_folder
        Below which the program's own modules are.
    """
    home = os.path.join(os.path.abspath(program_folder), "")
    os.mkdir = _shared(os.mkdir, home, time.time() - _START_S)
    of_paths: Any = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps os.mkdir there
    if of_paths is not None:
        of_paths.mkdir = staticmethod(os.mkdir)


def _shared(mkdir: Callable[..., None], home: str, start: float) -> Callable[..., None]:
    @wraps(mkdir)
    def make(path: Any, *args: Any, **kwargs: Any) -> None:
        try:
            mkdir(path, *args, **kwargs)
        except FileExistsError:
            if "dir_fd" in kwargs or not (_is_for_program(home) and _is_new_folder(path, start)):
                raise

    return make


def _is_new_folder(path: Any, start: float) -> bool:
    found = os.stat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_ctime >= start


def _is_for_program(home: str) -> bool:
    """Whether a module of the program wants the folder."""
    frame = sys._getframe(2)
    # Since Python 3.13 the functions of pathlib are in modules of a package.
    while (
        frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _MAKERS
    ):
        frame = frame.f_back
    file = os.path.abspath(frame.f_code.co_filename)
    is_installed = "site-packages" in file
    return frame.f_globals.get("__name__") == "__main__" or (
        file.startswith(home) and not is_installed
    )
