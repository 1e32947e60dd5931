"""Give this process a text that no other process has, also in another container.

Tag (`process_tag.py`): a number, unique on this machine, from which the process id can be read;
token: a text, unique across containers.
"""

from __future__ import annotations

import os
import secrets

__all__ = ["process_token"]

_TOKEN = secrets.token_hex(8)  # of this process and those forked from it


def process_token() -> str:
    """Return a text that no other process has, in other containers neither; threads share it.

    Two containers on one machine can have processes of the same number, and the same host name.
    """
    return f"{os.getpid()}-{_TOKEN}"
