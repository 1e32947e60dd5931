"""The tool ``model``: fit a cost model to result files, and project it to 100,000 ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mpistrat.bench.cost_model.build import Assumptions, model_of
from mpistrat.bench.cost_model.fitting.measurements import OVER_REPEATS
from mpistrat.bench.cost_model.model_file import write_model
from mpistrat.bench.cost_model.tables import print_model
from mpistrat.bench.cost_model.validation import hold_out
from mpistrat.bench.options import told_to_the_user
from mpistrat.bench.results.file import distinct, read_points
from mpistrat.bench.sizes import parse_sizes
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import is_same

__all__ = ["command"]

_NUMBER = r"(\d+(?:\.\d+)?)"
_NETWORK = re.compile(rf"{_NUMBER} ?us, ?{_NUMBER} ?([MG])B/s")
_WIDTH = 160


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    files: Annotated[list[Path], typer.Argument(help="Result files of bench scale, or of cases.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the model here, as JSON.")
    ] = None,
    held: Annotated[
        list[str] | None,
        typer.Option(
            "--hold-out",
            help="Do not fit points of these ranks and nodes, but predict them: ranks=4,nodes=4.",
        ),
    ] = None,
    validate: Annotated[
        list[Path] | None, typer.Option(help="Predict the points of this file, too.")
    ] = None,
    merge: Annotated[
        str,
        typer.Option(
            help="How to merge the repeats of a measurement: median, or least where other work on"
            " the machine disturbs them."
        ),
    ] = "median",
    ranks_per_node: Annotated[
        int | None,
        typer.Option(min=1, help="Of the projection. Default: the most that were measured."),
    ] = None,
    network: Annotated[
        str,
        typer.Option(help="Assume a network: latency of a message and bandwidth: '2us,12.5GB/s'."),
    ] = "",
    step_bytes: Annotated[
        str,
        typer.Option(
            help="Bytes of gradients of the projected step, as in 100MB. Default: of measured"
            " steps."
        ),
    ] = "",
    compute_ms: Annotated[
        float | None,
        typer.Option(min=0.001, help="Computation of the projected step, in milliseconds."),
    ] = None,
) -> None:
    """Fit a cost model to measured times, project it to 100,000 ranks, say what breaks first.

    Collectives have formulas (LogGP, by node and network) with parameters that are fitted to files
    of bench collectives; input, checkpoints and parameter servers are functions of the ranks.
    """
    with told_to_the_user():
        if merge not in OVER_REPEATS:
            raise UsageError(f"--merge {merge!r}: expected {' or '.join(OVER_REPEATS)}")
        if output is not None and any(is_same(output, one) for one in [*files, *(validate or ())]):
            raise UsageError(f"--output {output}: is a file of results; give another name")
        points, left = hold_out(read_points(distinct(files)), held or ())
        left += read_points(validate or ())
        given = Assumptions(
            *(merge, _network_of(network), ranks_per_node),
            *(_one_size(step_bytes), compute_ms),
        )
        model = model_of(points, left, given)
    print_model(Console(highlight=False, width=_WIDTH), model)
    if output is not None:
        with told_to_the_user():
            write_model(output, model)


def _network_of(text: str) -> tuple[float, float] | None:
    if not text:
        return None
    match = _NETWORK.fullmatch(text)
    if match is None or not float(match[1]) or not float(match[2]):
        raise UsageError(f"--network {text!r}: expected such as '2us,12.5GB/s' or '50us,117MB/s'")
    unit = {"M": 1e6, "G": 1e9}[match[3]]
    return float(match[1]) * 1e-6, float(match[2]) * unit


def _one_size(text: str) -> int | None:
    if not text:
        return None
    sizes = parse_sizes(text)
    if len(sizes) != 1 or sizes[0] < 1:
        raise UsageError(f"--step-bytes {text!r}: expected one size above 0, as in 102MB")
    return sizes[0]
