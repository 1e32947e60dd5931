"""Define the command ``mpistrat``: its options; each tool is a subcommand."""

from __future__ import annotations

from typing import Annotated

import typer

import mpistrat

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _say_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"mpistrat {mpistrat.__version__}")
        raise typer.Exit


@app.callback()
def _tools(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Tools of mpistrat, the strategies of tf.distribute on MPI ranks."""


@app.command(
    "run",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run_program(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="PROGRAM ...")] = None,
) -> None:
    """Run a program written for tf.distribute on MPI ranks, as it is."""
    from mpistrat.run.command import main as run

    run(arguments or [])
