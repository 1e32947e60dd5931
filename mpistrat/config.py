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
MPISTRAT_CHECKS          1           0: compare no calls and no data, keep no records (to measure;
                                     calls that differ give wrong results then, and later ones too)
MPISTRAT_RECORDS         256         calls that each communicator's flight recorder keeps at least
MPISTRAT_TIMELINE                    file for a timeline of all calls (health/timeline.py)
MPISTRAT_TUNING                      table of ``bench tune``; default in the cache folder
MPISTRAT_CACHE                       cache folder; default mpistrat in XDG_CACHE_HOME or ~/.cache
MPISTRAT_COMPILE_TIMEOUT 300         seconds that compiling a source on its first use may last
MPISTRAT_TF_NATIVE       1           0: compile nothing for TensorFlow (tf.numpy_function)
MPISTRAT_GPU_CARRIER     auto        what carries arrays between GPUs: nccl, peer_memory or staged
                                     (collectives/backends/gpu/choice.py)
MPISTRAT_GPU_ONE_SHOT    auto        whether one kernel all-reduces short arrays where nccl carries
                                     the others: off, on, or auto: not on AMD's GPUs
MPISTRAT_GPU_ORDER                   indices of the GPUs of a node by local rank, such as 3,2,1,0,
                                     where all its ranks see all of them
MPISTRAT_OUTCOME_FILE                file in which a PreemptionHandler leaves REQUEUE or DONE for
                                     the job's script
MPISTRAT_SIGNAL_LEAD     300         seconds between a signal and the end of the job
MPISTRAT_NODE_SIZE       0           k: take every k ranks of the job for a node (to test with)
MPISTRAT_RANK_PROCESS                set by a rank for programs that it starts: which one it is
======================== =========== ==========================================================

The tests know more: ``MPISTRAT_TESTS_LONG=1`` adds those that take long (``3/26`` the third of 26
parts of them), ``MPISTRAT_TESTS_ALL=1`` those that repeat others too, ``MPISTRAT_TESTS_LARGE=1``
those that need several GB, ``MPISTRAT_TESTS_WITHOUT_MPI=1`` skips those that need MPI,
``MPISTRAT_TESTS_SLOWER=3`` multiplies all deadlines, and
``MPISTRAT_TEST_JOB`` marks the processes of a job that a test started.

A variable is read when it is needed, so a program may set it before its first strategy. Values
that must agree on all ranks are compared at start
(:mod:`mpistrat.collectives.checking.settings_check`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mpistrat.errors import UsageError

_PREFIX = "MPISTRAT_"
_ALIKE = 0.8  # of the letters behind the prefix
_Value = TypeVar("_Value")

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_GRACE_S = 5.0
DEFAULT_FUSION_BYTES = 32 << 20
DEFAULT_RECORDS = 256
MAX_RECORDS = 10_000_000
DEFAULT_COMPILE_TIMEOUT_S = 300.0
DEFAULT_SIGNAL_LEAD_S = 300.0

GPU_CARRIERS = ("nccl", "peer_memory", "staged")
"""What can carry arrays between GPUs."""

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

AGREED = (
    "MPISTRAT_BACKEND",
    "MPISTRAT_CHECKS",
    "MPISTRAT_FUSION_BYTES",
    "MPISTRAT_GPU_CARRIER",
    "MPISTRAT_GPU_ONE_SHOT",
    "MPISTRAT_GPU_ORDER",
    "MPISTRAT_NODE_SIZE",
    "MPISTRAT_TIMELINE",
)
"""Variables that must have the same value on every rank."""


def _text(name: str, default: str = "") -> str:
    """Read a variable; an empty one counts as unset."""
    return os.environ.get(name, "") or default


def _number(name: str, default: float) -> float:
    text = _text(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        kind = "a finite number" if value > 0 else "a number"
        raise UsageError(f"{name}={text!r}: expected {kind} above 0; unset it or fix it")
    return value


def _is_on(name: str, default: str = "1") -> bool:
    """Read a variable that is 0 or 1."""
    text = _text(name, default)
    if text not in ("0", "1"):
        raise UsageError(f"{name}={text!r}: expected 0 or 1; unset it or fix it")
    return text == "1"


def valid_or(read: Callable[[], _Value], default: _Value) -> _Value:
    """Return a setting, or a default where its value is wrong.

    For what a rank needs before :func:`check_all` refuses the value: an error before the ranks
    can reach each other would leave the others waiting. Also for the end of a refused job.
    """
    try:
        return read()
    except UsageError:
        return default


def timeout_s() -> float:
    """Return the default deadline of waits, in seconds."""
    return _number("MPISTRAT_TIMEOUT", DEFAULT_TIMEOUT_S)


def grace_s() -> float:
    """Return how long a failed job may linger before it is aborted, in seconds."""
    return _number("MPISTRAT_GRACE", DEFAULT_GRACE_S)


def fusion_bytes() -> int:
    """Return the size of the buckets of lists of arrays, in bytes."""
    number = _number("MPISTRAT_FUSION_BYTES", DEFAULT_FUSION_BYTES)
    if number < 1:
        text = _text("MPISTRAT_FUSION_BYTES")
        raise UsageError(
            f"MPISTRAT_FUSION_BYTES={text!r}: expected at least 1; unset it or fix it"
        )
    return int(number)


def backend() -> str:
    """Return the name of the backend for strategies that name none."""
    return _text("MPISTRAT_BACKEND", "auto")


def log_level() -> str:
    """Return the level of the log, as a name of the logging module."""
    text = _text("MPISTRAT_LOG", "WARNING")
    if text.upper() not in LOG_LEVELS:
        raise UsageError(
            f"MPISTRAT_LOG={text!r}: expected {', '.join(LOG_LEVELS)}; unset it or fix it"
        )
    return text.upper()


def log_ranks() -> frozenset[int] | None:
    """Return the ranks that log, or None for all of them."""
    text = _text("MPISTRAT_LOG_RANKS", "0")
    if text.strip().lower() == "all":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(
            f"MPISTRAT_LOG_RANKS={text!r}: expected 'all' or ranks such as '0,3'; unset it or fix"
            " it"
        )
    return frozenset(map(int, parts))


def allows_singleton() -> bool:
    """Tell whether one process may run although its launcher announced more."""
    return _text("MPISTRAT_ALLOW_SINGLETON") == "1"


def checks() -> bool:
    """Tell whether ranks compare their calls, and record them.

    Off is for measurements: calls that differ then give wrong results or hang.
    """
    return _is_on("MPISTRAT_CHECKS")


def records() -> int:
    """Return the least number of calls that a communicator records."""
    number = _number("MPISTRAT_RECORDS", DEFAULT_RECORDS)
    if not 1 <= number <= MAX_RECORDS:
        raise UsageError(
            f"MPISTRAT_RECORDS={_text('MPISTRAT_RECORDS')!r}: expected a number from 1 to"
            f" {MAX_RECORDS}, all of which are kept in memory; unset it or fix it"
        )
    return int(number)


def timeline() -> str:
    """Return the file of the timeline, or "" for none."""
    return _text("MPISTRAT_TIMELINE")


def cache_folder() -> Path:
    """Return the folder for files that are kept between runs."""
    cache = _text("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(_text("MPISTRAT_CACHE") or Path(cache) / "mpistrat").absolute()


def tuning_file() -> Path:
    """Return the path of the tuning table (backends/shared_memory/tuning_table.py)."""
    return Path(_text("MPISTRAT_TUNING") or cache_folder() / "tuning.json")


def names_tuning_file() -> bool:
    """Tell whether the user has named a tuning table."""
    return bool(_text("MPISTRAT_TUNING"))


def compile_timeout_s() -> float:
    """Return how long the compiler may take, in seconds."""
    return _number("MPISTRAT_COMPILE_TIMEOUT", DEFAULT_COMPILE_TIMEOUT_S)


def tf_native() -> bool:
    """Tell whether TensorFlow may use a native operation, which is compiled on first use."""
    return _is_on("MPISTRAT_TF_NATIVE")


def gpu_carrier() -> str:
    """Return what is to carry arrays between GPUs, or ``"auto"``."""
    name = _text("MPISTRAT_GPU_CARRIER", "auto")
    if name not in ("auto", *GPU_CARRIERS):
        raise UsageError(
            f"MPISTRAT_GPU_CARRIER={name!r}: expected auto, {', '.join(GPU_CARRIERS)}; unset it or"
            " fix it"
        )
    return name


def gpu_one_shot() -> str:
    """Return whether one kernel may all-reduce short arrays of GPUs: auto, on or off."""
    value = _text("MPISTRAT_GPU_ONE_SHOT", "auto")
    if value not in ("auto", "on", "off"):
        raise UsageError(
            f"MPISTRAT_GPU_ONE_SHOT={value!r}: expected auto, on or off; unset it or fix it"
        )
    return value


def gpu_order() -> tuple[int, ...]:
    """Return the index of the GPU of each local rank in the full view of a node, or ()."""
    text = _text("MPISTRAT_GPU_ORDER").strip()
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(
            f"MPISTRAT_GPU_ORDER={text!r}: expected indices of GPUs by local rank, such as"
            " 3,2,1,0; unset it or fix it"
        )
    return tuple(map(int, parts))


def outcome_file() -> str:
    """Return the file for the outcome of the job, or "" for none."""
    return _text("MPISTRAT_OUTCOME_FILE")


def signal_lead_s() -> float:
    """Return how long before the end of a job its batch system sends a signal, in seconds."""
    return _number("MPISTRAT_SIGNAL_LEAD", DEFAULT_SIGNAL_LEAD_S)


def node_size() -> int:
    """Return how many ranks are treated as one node (for tests), or 0 for real nodes."""
    text = _text("MPISTRAT_NODE_SIZE", "0")
    if not text.isdigit():
        raise UsageError(
            f"MPISTRAT_NODE_SIZE={text!r}: expected a whole number, or 0 for none; unset it or fix"
            " it"
        )
    return int(text)


def agreed_settings() -> dict[str, str]:
    """Return the settings that must be equal on every rank."""
    return {name: os.environ[name] for name in AGREED if _text(name)}


def check_all(size: int = 1) -> None:
    """Read every setting that can be wrong, so that none is found to be after a failure only.

    Parameters
    ----------
    size
        Number of ranks of the job.

    Raises
    ------
    UsageError
        One is.
    """
    for read in (
        *(timeout_s, grace_s, fusion_bytes, log_level, records, checks, tf_native, node_size),
        *(compile_timeout_s, signal_lead_s, gpu_carrier, gpu_one_shot, gpu_order),
    ):
        read()
    _is_on("MPISTRAT_ALLOW_SINGLETON", "0")  # read before, when a wrong value counts as 0
    ranks = log_ranks()
    if size > 1 and ranks is not None and min(ranks) >= size:
        raise UsageError(
            f"MPISTRAT_LOG_RANKS={_text('MPISTRAT_LOG_RANKS')!r}: none of these ranks is in a job"
            f" of {size}; expected 'all' or ranks from 0 to {size - 1}; unset it or fix it"
        )


def misspelt() -> dict[str, str]:
    """Return variables that look like a setting and are none, and the setting they look like."""
    lines = [line for line in (__doc__ or "").splitlines() if line.startswith(_PREFIX)]
    known = {line.split()[0].removeprefix(_PREFIX) for line in lines}
    found: dict[str, str] = {}
    for name in sorted(name for name in os.environ if name.startswith(_PREFIX)):
        rest = name.removeprefix(_PREFIX)
        alike = difflib.get_close_matches(rest, known, 1, _ALIKE)
        if rest not in known and alike:
            found[name] = _PREFIX + alike[0]
    return found
