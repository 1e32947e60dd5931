"""Let the ranks of a job download the same file at once, as Keras does for its data sets.

Such a program looks whether the file is there. Another rank may have written a part of it.
"""

from __future__ import annotations

import os
import tempfile
import urllib.request
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["write_downloads_whole"]


def write_downloads_whole() -> None:
    """Change ``urllib.request.urlretrieve``, which Keras's ``get_file`` calls. **Local.**

    A file appears under its name when all of it is there. Ranks may still download it twice.
    """
    urllib.request.urlretrieve = _whole(urllib.request.urlretrieve)


def _whole(retrieve: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(retrieve)
    def download(url: str, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not filename or (os.path.exists(filename) and not os.path.isfile(filename)):
            return retrieve(url, filename, *args, **kwargs)
        folder, name = os.path.split(os.fspath(filename))
        with tempfile.TemporaryDirectory(dir=folder or ".", prefix=f".{name}-") as beside:
            part = os.path.join(beside, name)
            _, headers = retrieve(url, part, *args, **kwargs)
            os.replace(part, filename)
        return filename, headers

    return download
