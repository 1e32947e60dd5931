"""Start the command ``mpistrat``, or say which extra is missing."""

from __future__ import annotations

import sys

from mpistrat.doctor import start_mask  # noqa: F401 - first: numpy may change the CPU mask

# isort: split
from mpistrat.bench import __main__ as bench
from mpistrat.system.program_end import standard_output

__all__ = ["main"]


def main() -> None:
    """Run the tool that the command line names; exit with 2 where its extra is missing."""
    if sys.argv[1:2] == ["run"]:  # it needs no extra, and options after the program are its own
        from mpistrat.run.command import main as run

        run(sys.argv[2:])
        return
    # First: it says so if something is missing.
    only = sys.argv[2] if sys.argv[1:2] == ["bench"] and len(sys.argv) > 2 else None
    benchmarks = bench.application("mpistrat", "cli", ("jinja2", "pydantic", "tomlkit"), only)
    from mpistrat.cli.tools import app
    from mpistrat.doctor.command import doctor
    from mpistrat.horovod_build.command import app as horovod
    from mpistrat.sites.command import app as slurm

    app.add_typer(benchmarks, name="bench")
    app.add_typer(slurm, name="slurm")
    app.add_typer(horovod, name="horovod")
    app.command("doctor")(doctor)
    with standard_output.told_if_full("mpistrat"):
        app(prog_name="mpistrat")
