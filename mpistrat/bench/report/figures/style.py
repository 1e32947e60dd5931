"""How figures look: series differ in colour, and also in marker, line and hatch.

The colours are those of Okabe and Ito, which people with any colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

__all__ = ["BOUND", "GRID", "IDEAL", "Look", "applied", "below", "looks_of", "new_figure"]

IDEAL, GRID = "#595959", "#d9d9d9"

# Without their yellow, of which a line is hardly seen on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (3, 1)),
    (0, (8, 2, 2, 2)),
)
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")

_SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "svg.hashsalt": "mpistrat",  # the same results give the same file
    "text.parse_math": False,  # names of hosts may hold dollars
}


@dataclass(frozen=True)
class Look:
    """How one series is drawn.

    Attributes
    ----------
    colour, marker, line, hatch
        As matplotlib takes them.
    """

    colour: str
    marker: str
    line: Any
    hatch: str

    def lines(self) -> dict[str, Any]:
        """Return the arguments of a line with markers."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "marker": self.marker,
            "markerfacecolor": "white",
            "markeredgewidth": 1.4,
            "capsize": 2.5,
            "elinewidth": 0.9,
        }

    def bars(self) -> dict[str, Any]:
        """Return the arguments of a bar: its hatch is black on the colour."""
        colour = "#9a9a9a" if self.colour == "#000000" else self.colour
        return {"facecolor": colour, "hatch": self.hatch, "edgecolor": "black", "lw": 0.7}


BOUND = Look(IDEAL, "*", ":", "")
"""Of what cannot be beaten: a grey dotted line with stars."""


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save figures in this style within a block."""
    with mpl.rc_context(_SETTINGS):
        yield


def looks_of(names: Iterable[str], bounds: Iterable[str] = ()) -> dict[str, Look]:
    """Return a look for each name; from the 8th on only the combination is one of its own."""
    series = zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_LINES), cycle(_HATCHES), strict=False)
    found = dict.fromkeys(bounds, BOUND)
    for name in dict.fromkeys(names):
        if name not in found:
            found[name] = Look(*next(series))
    return found


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure, and its axes side by side; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(axes)


def below(figure: Any, handles: Sequence[Any], labels: Sequence[str], columns: int = 3) -> None:
    """Put one legend of all axes below them."""
    count = max(1, min(columns, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=count)
