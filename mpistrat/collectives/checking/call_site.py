"""Find the line of the user's program that called a collective, for errors."""

from __future__ import annotations

import os
import re
import sys
import threading
from functools import lru_cache
from pathlib import Path
from types import FrameType

from mpistrat.system.program_end import exit_hooks

__all__ = ["caller"]

_STDLIB = str(Path(os.__file__).resolve().parent) + os.sep
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_LIBRARY = re.compile(r".*[\\/](?:site|dist)-packages[\\/](\w+)")
_FRAMEWORKS = ("tensorflow", "keras")


def caller(frame: FrameType | None = None) -> str:
    """Return the innermost line of code outside this package as ``file:line (function)``.

    Where this thread has none, as those in which TensorFlow runs a graph, it is that of the main
    thread, which waits for it. What is called when a program has ended has none; this says so.

    Parameters
    ----------
    frame
        Where to begin, such as the frame of another thread; default where this is called.
    """
    found = _line_of_user(sys._getframe(1) if frame is None else frame)
    if found is not None:
        return found
    if exit_hooks.ending.has_begun:
        statuses = exit_hooks.ending.statuses
        how = f", after a call of sys.exit({statuses[-1]})" if statuses and statuses[-1] else ""
        return f"the end of the program{how}"
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    found = _line_of_user(main) if frame is None else None
    return "unknown line" if found is None else f"{found} of the main thread"


def _line_of_user(at: FrameType | None) -> str | None:
    """Return the innermost such line, if there is one."""
    while at is not None:
        name = at.f_code.co_filename
        if not (_is_between(name) or "_op_def_library" in at.f_globals):
            return f"{name}:{at.f_lineno} ({at.f_code.co_name})"
        at = at.f_back
    return None


@lru_cache(maxsize=1024)
def _is_between(file: str) -> bool:
    """Whether code of a file stands between the user's and a collective.

    That is this package, wherever it is installed, the standard library, and TensorFlow with
    Keras; what TensorFlow generates for an operation is known by a name in it instead.
    """
    if file.startswith((_PACKAGE, "<frozen")):
        return True
    library = _LIBRARY.search(file)
    return library[1] in _FRAMEWORKS if library else file.startswith(_STDLIB)
