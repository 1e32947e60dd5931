"""The tool ``report``: a page of figures of results, or a comparison of two result files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mpistrat.bench.options import told_to_the_user

__all__ = ["command"]

_WIDTH = 200


def command(
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of bench scale, or of a case's --json.", show_default=False),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The page, one HTML file.")
    ] = Path("report.html"),
    png: Annotated[
        Path | None,
        typer.Option(help="Folder for the figures as PNG files. Default: beside the page."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A projection of bench model, which gets a section.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="OLD NEW",
            help="Make no page, but name what became slower from one result file to the other;"
            " exit status 1 if something did, or newly fails.",
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, help="Per cent by which times have to differ to be named.")
    ] = 5.0,
) -> None:
    """Make a page of figures of results, and print a summary; or compare two result files.

    The page is one file without scripts; each figure is a PNG file, too.
    A change of time is named if both files have 3 repeats of it at least, it is
    above --threshold, and what differs from repeat to repeat does not explain it.
    """
    if compare is not None:
        with told_to_the_user():
            is_regression = _compare(compare, results or [], threshold)
        raise typer.Exit(1 if is_regression else 0)
    with told_to_the_user():
        _report(results or [], (output, png, model))


def _report(results: list[Path], paths: tuple[Path, Path | None, Path | None]) -> None:
    from rich.console import Console

    from mpistrat.bench.report.build import make_report
    from mpistrat.bench.report.headline import headline
    from mpistrat.bench.report.tables import failure_table
    from mpistrat.bench.report.terminal import print_summary
    from mpistrat.errors import UsageError

    if not results:
        raise UsageError("no result files; expected such as results/*.jsonl, or --compare OLD NEW")
    made = make_report(results, *paths)
    console = Console(highlight=False, width=_WIDTH)
    statements = headline(made.points, made.measurements)
    print_summary(console, statements, failure_table(made.points))
    folder = f", {len(made.pngs)} figures in {made.pngs[0].parent}" if made.pngs else ""
    console.print(f"\n{made.page}{folder}", soft_wrap=True, markup=False)


def _compare(files: tuple[Path, Path], others: list[Path], threshold: float) -> bool:
    from rich.console import Console

    from mpistrat.bench.report.analysis.change import LEAST_REPEATS
    from mpistrat.bench.report.analysis.comparison import compare
    from mpistrat.bench.report.build import read_results
    from mpistrat.bench.report.terminal import print_comparison
    from mpistrat.bench.results.file import read_points
    from mpistrat.errors import UsageError

    if others:
        raise UsageError(f"{others[0]}: not used with --compare, which takes two files")
    old = read_results([files[0]])
    new = read_points([files[1]])
    if not new:
        raise UsageError(f"{files[1]}: no results; expected lines of bench scale, or of --json")
    found = compare(old, new, threshold / 100)
    if found.is_empty and not found.failed:
        raise UsageError(
            f"{files[0]} and {files[1]} have no measurement of mpistrat in common; expected"
            " results of the same cases, options, ranks and nodes"
        )
    print_comparison(Console(highlight=False, width=_WIDTH), found, threshold)
    if not found.is_judged:
        raise UsageError(
            f"{files[0]} and {files[1]}: no measurement has at least {LEAST_REPEATS} repeats in"
            f" both; expected results of bench scale --repeats {LEAST_REPEATS}"
        )
    return found.is_regression
