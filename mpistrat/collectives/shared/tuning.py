"""Where one way through shared memory gives way to another, measured for a machine.

``python -m mpistrat.bench tune`` writes a table, by processor and number of ranks on a node, then
by kind of call and of dtype; rank 0's holds for all ranks of a node. Without one, built-in figures
do.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from mpistrat import config
from mpistrat.cluster.log import get_logger, warn_once

__all__ = [
    "CALLS",
    "HALVES",
    "Tuning",
    "Tunings",
    "find",
    "from_text",
    "key",
    "read",
    "to_text",
    "write",
]

_LOG = get_logger(__name__)

CALLS = (
    *("allreduce", "reduce", "reduce_scatter", "bcast"),
    *("allgather", "gather", "scatter", "alltoall"),
)
"""Names of entries, in the order of MpistratKind from 1 on (kernels/include/mpistrat/shm.h)."""

_MOST = 1 << 62

HALVES = " of halves"
"""What the names of entries for float16 and bfloat16 end with."""


@dataclass(frozen=True)
class Tuning:
    """Sizes in bytes; 0 is the built-in figure (kernels/shm/exchange.h).

    Attributes
    ----------
    chunk_bytes
        What of a long array is exchanged in one step.
    flat_bytes
        Up to so many bytes of all ranks together, every rank reduces everything in one step.
    whole_bytes
        Up to so many bytes, each of two ranks reduces all of a chunk instead of half of it.
    stream_bytes
        From so many bytes on, results are written past the caches.
    remote_bytes
        From so many bytes on, private arrays are read where they are, if the system allows it
        and results are not written past the caches.
    """

    chunk_bytes: int = 0
    flat_bytes: int = 0
    whole_bytes: int = 0
    stream_bytes: int = 0
    remote_bytes: int = 0

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Tuning:
        """Return the tuning of a table's entry.

        Raises
        ------
        ValueError
            It has other names, or something else than whole numbers.
        """
        try:
            found = cls(**entry)
        except TypeError as error:
            raise ValueError(str(error)) from None
        for name, value in asdict(found).items():
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
                raise ValueError(f"{name}={value!r}: expected a whole number of bytes")
        return found


Tunings: TypeAlias = dict[str, Tuning]
"""By name; what has no entry has the built-in figures."""


def to_text(tunings: Tunings) -> str:
    """Return one line of text."""
    return json.dumps({name: asdict(tuning) for name, tuning in tunings.items()})


def from_text(text: str) -> Tunings:
    """Return what `to_text` wrote."""
    return _from_table(json.loads(text))


def _from_table(table: Any) -> Tunings:
    if not isinstance(table, dict):
        raise ValueError(f"expected an object by kind of call, got a {type(table).__name__}")
    names = {*CALLS, *(name + HALVES for name in CALLS)}
    unknown = sorted(set(table) - names)
    if unknown:
        raise ValueError(f"it has entries {unknown}; expected some of {sorted(names)}")
    return {name: Tuning.from_mapping(entry) for name, entry in table.items()}


@lru_cache(maxsize=1)
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def key(ranks: int) -> str:
    """Return the name of this machine's entry for `ranks` ranks on a node."""
    return f"{_processor()}, {ranks} ranks"


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Return the table in `file`; an empty one if there is no such file."""
    try:
        table = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    if not isinstance(table, dict):
        raise ValueError(f"expected an object, got a {type(table).__name__}")
    return table


def write(file: Path, ranks: int, tunings: Tunings) -> None:
    """Put the entry of this machine and `ranks` into `file`, and keep the others."""
    table = read(file)
    table[key(ranks)] = json.loads(to_text(tunings))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")


def entry(file: Path, ranks: int) -> Tunings:
    """Return the entry in `file` for `ranks` ranks on this machine; {} without one.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is no such table.
    """
    return _from_table(read(file).get(key(ranks), {}))


def find(ranks: int) -> Tunings:
    """Return the entry for `ranks` ranks on this machine; {} without one. **Local.**"""
    file: Path | str = "MPISTRAT_TUNING"
    try:
        file = config.tuning_file()
        return entry(file, ranks)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: nobody's home folder
        warn_once(
            _LOG,
            f"tuning {file}",
            f"{file} is no table of tunings: {error}; run python -m mpistrat.bench tune again",
        )
        return {}
