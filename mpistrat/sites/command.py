"""The command ``mpistrat slurm``: render job scripts, submit them, list the known sites."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mpistrat.errors import ClusterError, MpistratError, UsageError
from mpistrat.sites.command_options import given, job_options, with_job_options
from mpistrat.sites.list_sites import print_sites
from mpistrat.sites.lookup import find
from mpistrat.sites.machine_here import here_of, notices_of_python
from mpistrat.sites.missing_program import notices_of_program
from mpistrat.sites.rendering.script import Script
from mpistrat.sites.rendering.script import render as rendered
from mpistrat.sites.submitting.follow import end_of, exit_code
from mpistrat.sites.submitting.follow import follow as followed
from mpistrat.sites.submitting.submit import submit as submitted

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

_Output = Annotated[
    Path | None, typer.Option(help="File for the script; one that differs is not overwritten.")
]
_REFUSED, _INTERRUPTED = 1, 130


@app.callback()
def _slurm() -> None:
    """Write job scripts for supercomputers, submit them, and list the known sites."""


@app.command()
@with_job_options
def render(
    job: Mapping[str, Any],
    program: Annotated[
        list[str] | None, typer.Argument(help="After --: the program and its arguments.")
    ] = None,
    output: _Output = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of each line where it comes from.")
    ] = False,
) -> None:
    """Print the script of a job: mpistrat slurm render --site S --strategy X -- train.py."""
    with _told_to_the_user():
        script = _script(job, program, explain)
        if output is None:
            print(script.text, end="")
        else:
            _write(output, script.text)
            quoted = shlex.quote(str(output))
            is_pbs = find(str(job["site"])).scheduler == "pbs"
            then = f"qsub {quoted}" if is_pbs else f"mpistrat slurm submit {quoted}"
            print(f"{output}: read it, edit it, then: {then}", file=sys.stderr)


@app.command()
@with_job_options
def submit(
    job: Mapping[str, Any],
    program: Annotated[
        list[str] | None,
        typer.Argument(help="A script; or, with --site, after --: the program and its arguments."),
    ] = None,
    output: _Output = None,
    follow: Annotated[
        bool, typer.Option(help="Print the job's output and state until it ends.")
    ] = True,
) -> None:
    """Submit a script, or the one that render would print, and follow its job.

    The exit code is the job's. Ctrl-C leaves the job alone.
    """
    with _told_to_the_user():
        script = _script_to_submit(job, program)
        if output is not None:
            _write(output, script)
        number = submitted(script)
        print(f"job {number} is submitted", file=sys.stderr)
        if follow:
            _follow(number)


@app.command()
def sites() -> None:
    """List the known sites: those that come with mpistrat, and your own."""
    with _told_to_the_user():
        print_sites()


def _script(job: Mapping[str, Any], program: list[str] | None, explain: bool = False) -> Script:
    if job["site"] is None:
        raise UsageError(
            "no --site; `mpistrat slurm sites` lists them, generic-slurm is for others"
        )
    site, options = find(job["site"]), job_options(job, program)
    here = here_of(site, options)
    script = rendered(site, options, here, explain)
    of_here = (*notices_of_python(site, options, here), *notices_of_program(options))
    for notice in (*script.notices, *of_here):
        print(f"note: {notice}", file=sys.stderr)
    return script


def _script_to_submit(job: Mapping[str, Any], program: list[str] | None) -> str | Path:
    """Return the text of a script, or the file of one of the user's own."""
    if job["site"] is not None:
        if find(job["site"]).scheduler == "pbs":
            raise UsageError(
                f"{job['site']} has PBS Pro, submit is for Slurm: mpistrat slurm render --output"
                " job.sh ..., then qsub job.sh"
            )
        return _script(job, program).text
    if options := given(job):
        raise UsageError(
            f"{', '.join(options)} without --site: options make a script, and need a site; in a"
            " script of yours edit its lines"
        )
    if not program or len(program) != 1:
        raise UsageError(
            f"expected one script or --site, got {len(program or [])} arguments; as in: mpistrat"
            " slurm submit job.sh"
        )
    return _own_script(Path(program[0]))


def _own_script(file: Path) -> str | Path:
    """Return a script's file, or the text of what can be read only once, as a pipe."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the script {file}: {error}") from error
    return file if file.is_file() else data.decode(errors="surrogateescape")


def _write(file: Path, script: str | Path) -> None:
    """Write a script, unless a file that may hold the user's edits is in its place."""
    try:
        # Before the file is there.
        data = script.encode() if isinstance(script, str) else script.read_bytes()
        if file.exists() and file.read_bytes() != data:
            raise UsageError(f"{file} exists and differs; remove it, or choose another --output")
        file.write_bytes(data)
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"cannot write {file}: {error}") from error


def _follow(number: str) -> None:
    """Follow a job to its end, and exit as it did; at Ctrl-C leave it alone."""
    try:
        records = followed(number)
    except KeyboardInterrupt:
        print(
            f"\njob {number} goes on: `squeue -j {number}` shows it, `scancel {number}` ends it",
            file=sys.stderr,
        )
        raise typer.Exit(_INTERRUPTED) from None
    print(end_of(number, records), file=sys.stderr)
    raise typer.Exit(exit_code(records))


@contextmanager
def _told_to_the_user() -> Iterator[None]:
    """Make an error one line, and the exit code 2, or 1 where Slurm is the one that refuses."""
    try:
        yield
    except MpistratError as error:
        print(f"mpistrat slurm: {error}", file=sys.stderr)
        raise typer.Exit(_REFUSED if isinstance(error, ClusterError) else 2) from None
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
