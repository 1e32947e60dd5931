"""Read and write the table of ``mpistrat bench tune``: settings by machine and ranks.

Rank 0's table holds for all ranks: of a node, or of the whole job for what is between the nodes.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from mpistrat import config
from mpistrat.collectives.backends.shared_memory import tuning
from mpistrat.collectives.backends.shared_memory.tuning import Sizes
from mpistrat.system.files.atomic_files import beside
from mpistrat.system.log import get_logger, warn_once

__all__ = [
    "allow_missing",
    "entry",
    "find",
    "node_key",
    "read",
    "try_to_write",
    "wire_key",
    "write",
]

_LOG = get_logger(__name__)
_Found = TypeVar("_Found")


class _Missing:
    """Whether a table that is named and missing is worth a warning."""

    is_told = True


_missing = _Missing()


@lru_cache(maxsize=1)
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def node_key(ranks: int) -> str:
    """Return the name of this machine's entry for `ranks` ranks on a node."""
    return f"{_processor()}, {ranks} ranks"


def wire_key(ranks: int, nodes: int) -> str:
    """Return the name of this machine's entry for several nodes.

    Nodes that are pretended have one of their own: there is no wire between them.

    Parameters
    ----------
    ranks
        Those of the least node: as many of each carry data over the wire.
    nodes
        How many there are.
    """
    kind = "pretended nodes" if config.node_size() else "nodes"
    return f"{_processor()}, {ranks} ranks on each of {nodes} {kind}"


def read(file: Path) -> dict[str, Any]:
    """Return the table in `file`, whatever its entries are; an empty one without such a file.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is no table at all.
    """
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it holds no JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("it holds no JSON: too many brackets, or digits of a number") from error
    if not isinstance(table, dict):
        raise ValueError(f"got {tuning.as_shown(table)}; expected an object")
    return table


def write(file: Path, key: str, tunings: Mapping[str, Sizes]) -> None:
    """Put the entry `key` into `file`, and keep the others; whoever reads it sees old or new."""
    table = read(file)
    table[key] = json.loads(tuning.to_text(tunings))
    with _successor(file) as new:
        new.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        new.replace(file.resolve())  # what a link means, not the link


def try_to_write(file: Path) -> None:
    """Do what writing needs, and leave `file` as it is; raise `OSError` if that fails."""
    with _successor(file):
        pass


@contextmanager
def _successor(file: Path) -> Iterator[Path]:
    """Make an empty file to take the place of `file`, of the same mode; removed if it does not."""
    place = file.resolve()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with beside(place) as new:
        if place.exists():
            place.open("a").close()  # fails where it is not to be written
            new.chmod(place.stat().st_mode & 0o777)
        yield new


def entry(file: Path, key: str, parse: Callable[[Any], _Found]) -> _Found:
    """Return what `parse` makes of the entry `key` in `file`, or of {} without one.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is no such table.
    """
    return parse(read(file).get(key, {}))


def allow_missing() -> None:
    """Warn of no missing table: this program makes it. **Local.**"""
    _missing.is_told = False


def _check_is_there(file: Path) -> None:
    """Warn where the user names a table that is not there."""
    if config.names_tuning_file() and not file.exists() and _missing.is_told:
        warn_once(
            _LOG,
            f"no tuning {file}",
            f"MPISTRAT_TUNING={str(file)!r} is not there, and nothing is tuned; run mpistrat bench"
            " tune to make it, correct the name, or unset it",
        )


def find(key: str, parse: Callable[[Any], _Found]) -> _Found:
    """Return what `parse` makes of the entry `key` of this user's table, or of {}. **Local.**"""
    file: Path | str = "MPISTRAT_TUNING"
    try:
        file = config.tuning_file()
        _check_is_there(file)
        return entry(file, key, parse)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: nobody's home folder
        warn_once(
            _LOG,
            f"tuning {file}",
            f"{file} is no table of tunings: {error}; run mpistrat bench tune again",
        )
        return parse({})
