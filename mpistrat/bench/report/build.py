"""Make a report of result files, from reading them to the page and its PNG files."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.bench.report.analysis.measurements import (
    Measurement,
    left_out,
    measurements_of,
    wrong_answers,
)
from mpistrat.bench.report.tables import last_line
from mpistrat.bench.report.units import counted, plain
from mpistrat.bench.results.file import distinct, read_points
from mpistrat.bench.results.point import Point
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import why_no_file

__all__ = ["Report", "make_report", "read_results"]


@dataclass(frozen=True)
class Report:
    """What was made.

    Attributes
    ----------
    page
        The file.
    pngs
        A file for each figure.
    points, measurements
        What it is of.
    """

    page: Path
    pngs: Sequence[Path]
    points: Sequence[Point]
    measurements: Sequence[Measurement]


def read_results(files: Sequence[Path]) -> list[Point]:
    """Return the points of files, at least one of which was measured.

    Raises
    ------
    UsageError
        A file cannot be read, or nothing in the files is a result; the message says what to do.
    """
    points = read_points(files)
    names = ", ".join(map(str, files))
    if not points:
        raise UsageError(
            f"{names}: no results; expected lines of mpistrat bench scale, or of --json"
        )
    if not measurements_of(points):
        counted = Counter(point.status for point in points)
        told = ", ".join(f"{count} {status}" for status, count in counted.items())
        failed = [point for point in points if point.status != "ok"]
        left = [message for _, message in left_out(points)]
        wrong = f", {len(wrong_answers(points))} wrong answers, {len(left)} records left out"
        first = f"; the first says: {last_line(failed[0])}" if failed else ""
        first += f"; the first record left out: {left[0]}" if left else ""
        raise UsageError(
            f"{names}: none of {len(points)} runs has a measurement ({told}{wrong}){first}; run"
            " the cases again"
        )
    return points


def make_report(
    files: Sequence[Path], page: Path, png_folder: Path | None = None, model: Path | None = None
) -> Report:
    """Write the page and the PNG files of results.

    Parameters
    ----------
    files
        Of results; one that is named twice counts once.
    page
        Is written into a folder that exists; another file of that name is replaced.
    png_folder
        Where PNG files are written; default: beside the page, in a folder of its name.
    model
        A file of ``mpistrat bench model``, whose projection gets a section.

    Raises
    ------
    UsageError
        A file cannot be read or written, or holds no results; or matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            'a report needs matplotlib, not installed here; run: pip install "mpistrat[bench]"'
        )
    # Loaded here: matplotlib takes a while, and the other cases do without it.
    from mpistrat.bench.report.figures.style import applied
    from mpistrat.bench.report.page import page_text, write_page, write_pngs
    from mpistrat.bench.report.projection_file import read_projection
    from mpistrat.bench.report.sections import sections_of

    _check_folder(page)
    files = distinct(files)
    points = read_results(files)
    projection = read_projection(model) if model else None
    _check_not_replaced(page, [*files, *([model] if model else [])])
    measurements = measurements_of(points)
    with applied():
        sections = sections_of(points, measurements, projection)
        write_page(page, page_text("mpistrat benchmarks", _subtitle(points, files), sections))
        folder = page.with_name(f"{page.stem}-png") if png_folder is None else png_folder
        pngs = write_pngs(folder, sections)
    return Report(page, pngs, points, measurements)


def _check_folder(page: Path) -> None:
    """Raise `UsageError` if the page has no folder, before the results are read."""
    if why := why_no_file(page):
        raise UsageError(f"-o {page}: {why}")


def _check_not_replaced(page: Path, inputs: Sequence[Path]) -> None:
    """Raise `UsageError` if the page is an input, by another name or link, too."""
    same = [one for one in inputs if page.exists() and os.path.samefile(page, one)]
    if same:
        raise UsageError(f"-o {page}: is the same file as {same[0]}; expected another name")


def _subtitle(points: Sequence[Point], files: Sequence[Path]) -> str:
    dates = sorted({str(p.facts["date"]) for p in points if "date" in p.facts})
    span = dates[:1] + dates[-1:] if len(dates) > 1 else dates
    ranks = sorted({p.setup.ranks for p in points})
    jobs = f"1 to {ranks[-1]}" if ranks[0] == 1 and len(ranks) > 1 else ", ".join(map(str, ranks))
    names = ", ".join(file.name for file in files[:4]) + (", …" if len(files) > 4 else "")
    parts = [
        f"{counted(len(points), 'run')} on {jobs} ranks",
        *([" to ".join(span)] if span else []),
    ]
    for fact in ("host", "mpi"):
        values = {str(p.facts[fact]) for p in points if p.facts.get(fact)}
        parts += values if len(values) == 1 else []
    return plain("; ".join([*parts, f"from {names}"]), 300)
