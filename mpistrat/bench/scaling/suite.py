"""Read a suite: which cases run with which options, on how many ranks and nodes."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpistrat.bench.scaling.case_options import check_options
from mpistrat.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Run", "Suite", "read_suite", "shipped_suites"]

Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]
Repeats = Annotated[int, Field(ge=1, le=1000, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Run(_Table):
    """A case with its options, a table ``[[run]]`` of a suite.

    Attributes
    ----------
    case
        A subcommand of ``mpistrat bench``.
    options
        Its options, by name without the dashes; ``true`` and ``false`` for switches.
    ranks
        On how many ranks; default: the suite's.
    least_ranks
        Fewer are left out, as for cases that mean nothing on one.
    nodes
        On how many nodes each number of ranks runs; default: the suite's.
    repeats
        How often; default: the suite's.
    timeout_s
        The longest time of one run, in seconds; default: the suite's.
    """

    case: str
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    ranks: Counts | None = None
    least_ranks: Count = 1
    nodes: Counts | None = None
    repeats: Repeats | None = None
    timeout_s: float | None = Field(default=None, gt=0)


class Suite(_Table):
    """A suite of benchmarks.

    Attributes
    ----------
    title
        What it measures.
    ranks
        On how many ranks cases run; default: the powers of two up to all, and all.
    nodes
        On how many nodes each number of ranks runs; default: as few as hold the ranks.
    repeats
        How often each case runs.
    budget_s
        Seconds after which no further run begins.
    timeout_s
        The longest time of one run, in seconds.
    run
        The cases.
    """

    title: str = ""
    ranks: Counts | None = None
    nodes: Counts | None = None
    repeats: Repeats = 3
    budget_s: float = Field(default=1800.0, gt=0)
    timeout_s: float = Field(default=300.0, gt=0)
    run: Annotated[tuple[Run, ...], Field(min_length=1)]


def shipped_suites() -> dict[str, Path]:
    """Return the files of the suites that come with this package, by their names."""
    folder = Path(str(resources.files(__package__))) / "suites"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def read_suite(name: str) -> Suite:
    """Return a suite of this package, or that of a file whose name ends in ``.toml``.

    Raises
    ------
    UsageError
        There is none, or it has a mistake: an unknown key, case or option, a wrong value.
    """
    file = Path(name).expanduser() if name.endswith(".toml") else _shipped(name)
    if file.exists() and not file.is_file():
        raise UsageError(f"{file}: expected a file with a suite in TOML")
    try:
        suite = Suite.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}; expected a suite in TOML") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}; expected a suite in TOML") from error
    except ValidationError as error:
        raise UsageError("\n".join(_mistakes(file, error))) from error
    for run in suite.run:
        check_options(run.case, run.options, where=f"{file}: ")
    return suite


def _shipped(name: str) -> Path:
    suites = shipped_suites()
    if name in suites:
        return suites[name]
    close = get_close_matches(name, suites, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    raise UsageError(
        f"no suite is named {name!r}{meant} Known are {', '.join(suites)}; a file's name ends in"
        " .toml"
    )


def _mistakes(file: Path, error: ValidationError) -> list[str]:
    return [
        f"{file}: {'.'.join(map(str, one['loc']))}: {one['msg']}; got {one['input']!r}"
        for one in error.errors()
    ]
