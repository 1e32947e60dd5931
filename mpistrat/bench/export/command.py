"""The command ``mpistrat bench export``: its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mpistrat.bench.export.extra_p_and_reframe import extra_p_lines, reframe_lines
from mpistrat.bench.export.measurement import Measurement, measurements
from mpistrat.bench.export.osu_and_nccl_tests import nccl_tests_lines, osu_lines
from mpistrat.bench.options import told_to_the_user
from mpistrat.bench.results.file import distinct, read_points
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import is_same

__all__ = ["Format", "command"]


class Format(str, Enum):
    """The program whose format is written."""

    OSU = "osu"
    NCCL_TESTS = "nccl-tests"
    EXTRA_P = "extra-p"
    REFRAME = "reframe"


_WRITERS: dict[Format, Callable[[Iterable[Measurement]], Iterable[str]]] = {
    Format.OSU: osu_lines,
    Format.NCCL_TESTS: nccl_tests_lines,
    Format.EXTRA_P: extra_p_lines,
    Format.REFRAME: reframe_lines,
}
_ONLY_COLLECTIVES = (Format.OSU, Format.NCCL_TESTS)


def command(
    files: Annotated[list[Path], typer.Argument(help="Files of results.", metavar="FILE ...")],
    to: Annotated[
        Format, typer.Option("--format", help="osu and nccl-tests have collectives only.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: standard output.")
    ] = None,
) -> None:
    """Write results in the format of another program."""
    with told_to_the_user():
        if output is not None and any(is_same(output, file) for file in files):
            raise UsageError(f"--output {output}: is a file of results; give another name")
        lines = list(_WRITERS[to](_found(files, to)))
        if output is None:
            print("\n".join(lines))
            return
        try:
            output.write_text("\n".join(lines) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--output {output}: {error}") from error


def _found(files: list[Path], to: Format) -> list[Measurement]:
    found = list(measurements(read_points(distinct(files))))
    if to in _ONLY_COLLECTIVES:
        found = [one for one in found if one.point.setup.case == "collectives"]
    if not found:
        what = "collectives" if to in _ONLY_COLLECTIVES else "results with times"
        raise UsageError(f"{', '.join(map(str, files))}: no {what}, which {to.value} needs")
    return found
