"""The command line of the benchmarks: a subcommand for each case.

A new case is a module with a function ``command``, whose parameters are its options, and a line
in `CASES`. Tools start cases, or read their results; they run on one process.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpistrat.system.program_end import standard_output

if TYPE_CHECKING:
    import typer

CASES = {
    "collectives": "mpistrat.bench.cases.collectives",
    "fit": "mpistrat.bench.cases.on_tensorflow.fit",
    "fused": "mpistrat.bench.cases.fused",
    "gpu": "mpistrat.bench.cases.gpu",
    "gradients": "mpistrat.bench.cases.on_tensorflow.gradients",
    "horovod": "mpistrat.bench.cases.horovod",
    "io": "mpistrat.bench.cases.io",
    "overhead": "mpistrat.bench.cases.overhead",
    "ps": "mpistrat.bench.cases.ps",
    "replay": "mpistrat.bench.cases.replay",
    "rows": "mpistrat.bench.cases.rows",
    "startup": "mpistrat.bench.cases.startup",
    "step": "mpistrat.bench.cases.step",
    "steps": "mpistrat.bench.cases.on_tensorflow.steps",
    "strong": "mpistrat.bench.cases.strong",
    "train": "mpistrat.bench.cases.train",
    "tune": "mpistrat.bench.cases.tune",
    "variables": "mpistrat.bench.cases.variables",
    "weak": "mpistrat.bench.cases.weak",
}

TOOLS: dict[str, str] = {
    "export": "mpistrat.bench.export.command",
    "model": "mpistrat.bench.cost_model.command",
    "report": "mpistrat.bench.report.command",
    "scale": "mpistrat.bench.scaling.command",
}

_NEEDED = ("typer", "rich")


def application(
    program: str = "mpistrat.bench",
    extra: str = "bench",
    besides: Sequence[str] = (),
    only: str | None = None,
) -> typer.Typer:
    """Return the command line's app, or exit with 2 where the program's extra is missing.

    Parameters
    ----------
    besides
        Modules that the program needs, and benchmarks do not.
    only
        The subcommand that will be called, if that is known: the others are not loaded, which on
        many ranks of a node takes seconds.
    """
    missing = [name for name in (*_NEEDED, *besides) if not importlib.util.find_spec(name)]
    if missing:
        print(
            f"{program} needs {', '.join(missing)}, not installed here; "
            f'run: pip install "mpistrat[{extra}]"',
            file=sys.stderr,
        )
        sys.exit(2)
    import typer

    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_benchmarks)
    modules = {**CASES, **TOOLS}
    if only in modules:
        modules = {only: modules[only]}
    for name, module in modules.items():
        panel = "Tools" if name in TOOLS else "Cases"
        app.command(name, rich_help_panel=panel)(importlib.import_module(module).command)
    return app


def main() -> None:
    """Run the case that the command line names."""
    only = next(iter(sys.argv[1:]), None)
    run = application(only=only)
    with standard_output.told_if_full("mpistrat.bench"):
        run(prog_name="python -m mpistrat.bench")


def _benchmarks() -> None:
    """Measure mpistrat. Start cases with mpirun or srun, and tools without."""


if __name__ == "__main__":
    main()
