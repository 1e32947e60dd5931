"""Every ``MPISTRAT_*`` environment variable and every default, in one place.

======================== =========== ==========================================================
variable                 default     meaning
======================== =========== ==========================================================
MPISTRAT_TIMEOUT         300         seconds a wait may last before it is an error
MPISTRAT_GRACE           5           seconds a failed job gets to say what it saw before Abort
MPISTRAT_BACKEND         auto        backend of strategies that name none
MPISTRAT_LOG             WARNING     level of the log
MPISTRAT_LOG_RANKS       0           ranks that log: ``all`` or a comma list
MPISTRAT_FUSION_BYTES    33554432    size of the buckets that lists of arrays are packed into
MPISTRAT_ALLOW_SINGLETON 0           1: run alone although the launcher meant a larger job
======================== =========== ==========================================================

The tests know two more: ``MPISTRAT_TESTS_WITHOUT_MPI=1`` skips those that need MPI, and
``MPISTRAT_TEST_JOB`` marks the processes of a job that a test started.

A variable is read when it is needed, so a program may set it before its first strategy. Values
that must agree on all ranks are compared at start (:mod:`mpistrat.collectives.agreement`).
"""

from __future__ import annotations

import os

from mpistrat.errors import UsageError

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_GRACE_S = 5.0
DEFAULT_FUSION_BYTES = 32 << 20

MAX_COUNT = 2**30
"""Elements in one MPI message; longer arrays go in chunks (Open MPI refuses more than 2³¹-1)."""

INLINE_BYTES = 192
"""Payload that rides in the gate's line of a small call (see collectives/gate.py)."""

INLINE_MAX_RANKS = 32
"""Above this size the gate's lines carry no payload: their table grows with ranks²."""

AGREED = ("MPISTRAT_BACKEND", "MPISTRAT_FUSION_BYTES")
"""Variables that must have the same value on every rank."""


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{name}={text!r}: expected a number above 0; unset it or fix it")
    return value


def timeout_s() -> float:
    """Return the deadline of waits that were given none, in seconds."""
    return _number("MPISTRAT_TIMEOUT", DEFAULT_TIMEOUT_S)


def grace_s() -> float:
    """Return how long a failed job may linger before it is aborted, in seconds."""
    return _number("MPISTRAT_GRACE", DEFAULT_GRACE_S)


def fusion_bytes() -> int:
    """Return the size of a fusion bucket, in bytes."""
    return int(_number("MPISTRAT_FUSION_BYTES", DEFAULT_FUSION_BYTES))


def backend() -> str:
    """Return the name of the backend for strategies that name none."""
    return os.environ.get("MPISTRAT_BACKEND", "auto")


def log_level() -> str:
    """Return the level of the log, as a name of the logging module."""
    return os.environ.get("MPISTRAT_LOG", "WARNING").upper()


def log_ranks() -> frozenset[int] | None:
    """Return the ranks that log, or None for all of them."""
    text = os.environ.get("MPISTRAT_LOG_RANKS", "0")
    if text.strip().lower() == "all":
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"MPISTRAT_LOG_RANKS={text!r}: expected 'all' or ranks such as '0,3'"
        ) from None


def allows_singleton() -> bool:
    """Tell whether one process may run although its launcher meant a larger job."""
    return os.environ.get("MPISTRAT_ALLOW_SINGLETON", "0") == "1"


def agreed_settings() -> dict[str, str]:
    """Return the settings that must be equal on every rank."""
    return {name: os.environ[name] for name in AGREED if name in os.environ}
