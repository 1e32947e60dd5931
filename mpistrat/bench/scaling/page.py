"""Make the page of a suite's results, with a projection where they suffice for one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rich.console import Console

from mpistrat.bench.results.file import read_points
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import is_same, why_no_file

__all__ = ["check_page", "make_page"]


def check_page(page: Path, results: Path) -> None:
    """Raise `UsageError` if no page can be written, before anything is measured."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            '--report needs matplotlib, not installed here; run: pip install "mpistrat[bench]"'
        )
    beside = _model_file(page)
    for file in (page, beside):
        if file.absolute() == results.absolute() or is_same(file, results):
            raise UsageError(f"--report {page}: {file} is the result file; give another name")
    if why := why_no_file(page):
        raise UsageError(f"--report {page}: {why}")


def _model_file(page: Path) -> Path:
    return page.with_name(f"{page.stem}-model.json")


def make_page(results: Path, page: Path, console: Console) -> None:
    """Write the page of a result file, and beside it the projection; print the page's summary.

    Raises
    ------
    UsageError
        Nothing was measured, or the page cannot be written.
    """
    # Loaded here: matplotlib takes a while, and most suites have no page.
    from mpistrat.bench.cost_model.build import model_of
    from mpistrat.bench.cost_model.model_file import write_model
    from mpistrat.bench.report.build import make_report
    from mpistrat.bench.report.headline import headline
    from mpistrat.bench.report.tables import failure_table
    from mpistrat.bench.report.terminal import print_summary

    file = _model_file(page)
    model: Path | None = file
    try:
        write_model(file, model_of(read_points([results])))
    except UsageError as error:
        model = None
        console.print(f"no projection to more ranks: {error}", markup=False, soft_wrap=True)
    made = make_report([results], page, None, model)
    print_summary(console, headline(made.points, made.measurements), failure_table(made.points))
    beside = f", {made.pngs[0].parent}" if made.pngs else ""
    beside += f", {model}" if model else ""
    console.print(f"wrote {made.page}{beside}", markup=False, soft_wrap=True)
