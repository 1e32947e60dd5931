"""Identify a process of this machine by a unique number, its tag.

Tag: a number, unique on this machine, from which the process id can be read; token
(`process_token.py`): a text, unique across containers.
"""

from __future__ import annotations

import os

from mpistrat.system.processes import process_status

__all__ = ["is_tag_of", "my_tag", "pid_of"]

_START_BITS = 34  # the clock of the kernel's ticks needs five years to come round


def my_tag() -> int:
    """Return a number below 2⁵⁶ that no other process of this machine has or had."""
    try:
        start = process_status.read(os.getpid()).start
    except (FileNotFoundError, ProcessLookupError):  # there is no /proc
        start = 0
    return os.getpid() << _START_BITS | _bits(start)


def pid_of(tag: int) -> int:
    """Return the process id in a tag."""
    return tag >> _START_BITS


def is_tag_of(tag: int, status: process_status.ProcessStatus) -> bool:
    """Tell whether a tag is that of the process that has its id now, and this `status`."""
    # 0: the process had no /proc to read its start from. Another start: the number is used again.
    return _bits(tag) in (0, _bits(status.start))


def _bits(start: int) -> int:
    return start & ((1 << _START_BITS) - 1)
