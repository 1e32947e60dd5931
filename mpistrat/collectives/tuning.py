"""Where one way through shared memory gives way to another, measured for a machine.

``python -m mpistrat.bench tune`` writes a table; rank 0's entry for its processor and number of
ranks holds for all ranks of a node. Without one, built-in figures hold.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpistrat import config
from mpistrat.cluster.log import get_logger, warn_once

__all__ = ["Tuning", "find", "key", "read", "write"]

_LOG = get_logger(__name__)


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
        From so many bytes on, private arrays are read where they are, if the system allows it.
    """

    chunk_bytes: int = 0
    flat_bytes: int = 0
    whole_bytes: int = 0
    stream_bytes: int = 0
    remote_bytes: int = 0

    def to_text(self) -> str:
        """Return one line of text."""
        return json.dumps(asdict(self))

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
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name}={value!r}: expected a whole number of bytes")
        return found


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


def write(file: Path, ranks: int, tuning: Tuning) -> None:
    """Put the entry of this machine and `ranks` into `file`, and keep the others."""
    table = read(file)
    table[key(ranks)] = asdict(tuning)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")


def find(ranks: int) -> Tuning:
    """Return the entry for `ranks` ranks on this machine, or the built-in figures. **Local.**"""
    file: Path | str = "MPISTRAT_TUNING"
    try:
        file = config.tuning_file()
        entry = read(file).get(key(ranks))
        return Tuning() if entry is None else Tuning.from_mapping(entry)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: nobody's home folder
        warn_once(
            _LOG,
            f"tuning {file}",
            f"{file} is no table of tunings: {error}; run python -m mpistrat.bench tune again",
        )
        return Tuning()
