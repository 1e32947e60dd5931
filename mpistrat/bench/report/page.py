"""Write a report's page, with the figures inside it, and the figures as PNG files."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from mpistrat.bench.report.section import Figure, Section
from mpistrat.errors import UsageError

__all__ = ["Image", "page_text", "write_page", "write_pngs"]

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_PNG_DPI = 200
_CSS_PIXELS = 96  # of an inch
_TITLE_CHARACTERS, _TITLE_GAP = 10.5, 0.1  # by inch of width; inches


@dataclass(frozen=True)
class Image:
    """A figure as the page holds it.

    Attributes
    ----------
    address
        ``data:`` and the whole file.
    width, height
        In CSS pixels.
    """

    address: str
    width: int
    height: int


def page_text(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the page.

    Notes
    -----
    Figures are SVG, sharp on any screen and paper, each in the ``data:`` address of an ``<img>``:
    it takes an alt text as any image does, and identifiers within one figure cannot clash with
    another's. Text of results is escaped by Jinja2.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    images = {one.name: _image(one) for section in sections for one in section.figures}
    return template.render(title=title, subtitle=subtitle, sections=sections, images=images)


def write_page(path: Path, text: str) -> None:
    """Write a page to a file.

    Raises
    ------
    UsageError
        It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written: {error}") from error


def write_pngs(folder: Path, sections: Sequence[Section]) -> list[Path]:
    """Write each figure to a folder, with its title above it; return the files.

    Raises
    ------
    UsageError
        They cannot be written.
    """
    figures = [one for section in sections for one in section.figures]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in figures:
            _add_title(one)
            path = folder / f"{one.name}.png"
            one.drawing.savefig(path, dpi=_PNG_DPI, bbox_inches="tight", pad_inches=0.12)
    except OSError as error:
        raise UsageError(f"--png {folder}: cannot be written: {error}") from error
    return [folder / f"{one.name}.png" for one in figures]


def _add_title(figure: Figure) -> None:
    """Write the title above the figure, outside of its edges: the file is enlarged by it."""
    width, height = figure.drawing.get_size_inches()
    lines = textwrap.wrap(figure.title, round(width * _TITLE_CHARACTERS))
    place = (0.01, 1 + _TITLE_GAP / height)
    figure.drawing.text(*place, "\n".join(lines), va="bottom", fontsize=11, fontweight="bold")


def _image(figure: Figure) -> Image:
    data = _svg(figure.drawing)
    address = "data:image/svg+xml;base64," + base64.b64encode(data).decode("ascii")
    width, height = (round(inches * _CSS_PIXELS) for inches in figure.drawing.get_size_inches())
    return Image(address, width, height)


def _svg(drawing: Any) -> bytes:
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    drawing.set_layout_engine("none")  # it is laid out, which takes as long as drawing
    return buffer.getvalue()
