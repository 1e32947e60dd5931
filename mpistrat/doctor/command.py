"""The command ``mpistrat doctor``: its options, and where its report goes."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from mpistrat.cluster import report_once
from mpistrat.cluster.launcher.launch_variables import was_launched
from mpistrat.doctor import runner
from mpistrat.doctor.checks import CHECKS
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.here import Options
from mpistrat.doctor.lint.examining import examine
from mpistrat.doctor.lint.output import show
from mpistrat.doctor.lint.report import exit_code
from mpistrat.doctor.report.json_report import as_json
from mpistrat.doctor.report.junit import as_junit
from mpistrat.doctor.report.table import print_table
from mpistrat.errors import UsageError
from mpistrat.system.files.atomic_files import replace_whole
from mpistrat.system.files.output_paths import why_no_file
from mpistrat.system.program_end import standard_output

if TYPE_CHECKING:
    from mpistrat.sites.schema import Site

__all__ = ["doctor"]

_STANDARD_OUTPUT = "-"
_WRONG = 2  # the exit status of options that cannot be followed


def doctor(  # noqa: PLR0913, PLR0917 - its arguments are the options
    files: Annotated[
        list[str] | None, typer.Argument(help="Programs and folders, for --lint.", metavar="FILE")
    ] = None,
    lint: Annotated[
        bool,
        typer.Option(
            "--lint",
            help="Read programs, without running them, and name what Horovod does wrong in them"
            " under Keras 3. Exit status: 0 if nothing was found, 1 for findings, 2 if a file"
            " cannot be read.",
        ),
    ] = False,
    site: Annotated[
        str | None,
        typer.Option(
            help="Compare the machine with this site's file: a name of 'mpistrat slurm sites', or"
            " a path. Default: the site whose host names fit.",
            metavar="NAME",
        ),
    ] = None,
    write_site: Annotated[
        bool,
        typer.Option(
            "--write-site",
            help="Write the site's file with the values of this machine into"
            " ~/.config/mpistrat/sites, which goes before the one of mpistrat.",
        ),
    ] = False,
    json: Annotated[
        str | None,
        typer.Option(help="Write JSON to a file; '-' prints it, and no table.", metavar="FILE"),
    ] = None,
    junit: Annotated[
        str | None,
        typer.Option(help="Write JUnit's XML to a file; '-' prints it.", metavar="FILE"),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            help="Also import this module in a process of its own, and watch the CPU mask:"
            " tensorflow, torch, ... May be repeated.",
            metavar="MODULE",
        ),
    ] = None,
    save_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Time of a checkpoint, to compare with the signal's lead."),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=5, help="Seconds after which the command gives up.")
    ] = 60.0,
) -> None:
    """Check this job, or a program for Horovod (--lint FILE).

    Of a job: launcher, MPI, CPUs, GPUs, network, files, limits, Slurm, site.

    Start it as the training is started: with srun, mpirun, or alone. Exit
    status: 0 if all is well, 1 for warnings, 2 for failures, on all ranks.
    """
    launched = was_launched()
    try:
        if lint or files:
            _lint(files or [], lint, json, (site, write_site, junit, imports))
        choose = _choice(site, write_site)
        targets = _targets(json, junit)
    except UsageError as error:
        report_once.leave(_WRONG, partial(_say, str(error)))
    options = Options(tuple(imports or ()), save_seconds, deadline)
    report = _reporter(targets, site if write_site else None)
    plan = runner.Plan(CHECKS, options, choose, report, _program())
    runner.leave(runner.run(plan), launched)


def _lint(files: list[str], is_wanted: bool, json: str | None, others: Sequence[Any]) -> NoReturn:
    """Read the programs and report; end with the exit status. The job is not looked at."""
    if not (files and is_wanted):
        raise UsageError("--lint and files go together: mpistrat doctor --lint train.py")
    if any(others):
        raise UsageError("--lint reads programs: it takes --json, and no option of a job's")
    _targets(json, None)
    examined = examine(files)
    report_once.leave(exit_code(examined), partial(_is_done, partial(show, examined, json)))


def _say(text: str) -> bool:
    print(f"mpistrat doctor: {text}", file=sys.stderr, flush=True)
    return True


def _program() -> str:
    """Return this command line, without its launcher."""
    own = "mpistrat" if shutil.which("mpistrat") else f"{sys.executable} -m mpistrat"
    return " ".join([own, shlex.join(sys.argv[1:])]).strip()


def _choice(name: str | None, write_site: bool) -> Callable[[], Site | None]:
    """Return what finds the site, on the rank that reports; a wrong name is found on all."""
    if name is None:
        if write_site:
            raise UsageError("--write-site needs --site NAME: it corrects that site's file")
        return _guessed
    from mpistrat.sites.lookup import find

    found = find(name)
    return lambda: found


def _guessed() -> Site | None:
    from mpistrat.doctor.site.choice import guessed

    try:
        return guessed()
    except UsageError as error:  # an installation without sites: the other checks do without
        print(f"mpistrat doctor: {error}", file=sys.stderr)
        return None


def _targets(json: str | None, junit: str | None) -> dict[Callable[[Examination], str], str]:
    """Return the files to write, by what words them."""
    targets: dict[Callable[[Examination], str], str] = {}
    for words, file in ((as_json, json), (as_junit, junit)):
        targets |= {words: file} if file else {}
    if list(targets.values()).count(_STANDARD_OUTPUT) > 1:
        raise UsageError("--json - and --junit - would both be printed; name a file for one")
    for file in targets.values():
        if file != _STANDARD_OUTPUT:
            _check_can_be(Path(file))
    return targets


def _check_can_be(file: Path) -> None:
    """Refuse what can be no file of a report, before the checks take their time."""
    if why := why_no_file(file):
        raise UsageError(f"cannot write {file}: {why}")


def _reporter(
    files: dict[Callable[[Examination], str], str], corrected_site: str | None
) -> Callable[[Examination], bool]:
    def report(examination: Examination) -> bool:
        writers = [partial(_write, file, words, examination) for words, file in files.items()]
        if _STANDARD_OUTPUT not in files.values():
            writers.insert(0, partial(_print_table, examination))
        if corrected_site is not None:
            writers.append(partial(_write_site, corrected_site, examination))
        done = [_is_done(writer) for writer in writers]  # also those after one that fails
        return all(done)

    return report


def _is_done(write: Callable[[], None]) -> bool:
    """Write a file; say why it cannot be written, and that it was not."""
    try:
        write()
    except (OSError, UsageError) as error:
        _say(f"cannot write: {error}")
        return False
    return True


def _write(file: str, words: Callable[[Examination], str], examination: Examination) -> None:
    if file == _STANDARD_OUTPUT:
        standard_output.show(words(examination))
    else:
        replace_whole(Path(file), words(examination).encode())


def _print_table(examination: Examination) -> None:
    """Print the report, as wide as the terminal, in one piece.

    A launcher's pipe has no width: rich takes 80 columns then, unless COLUMNS is set. Open MPI's
    gives terminals to its ranks, wherever its own output goes: no colours under a launcher.
    """
    console = Console(highlight=False, force_terminal=False if was_launched() else None)
    with console.capture() as captured:
        print_table(examination, console)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    encoding = sys.stdout.encoding or "ascii"  # of a locale, it may lack characters of the report
    standard_output.show(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _write_site(name: str, examination: Examination) -> None:
    """Write the corrected file, and say where it is; on standard error, beside JSON."""
    from mpistrat.doctor.site.local_file import measured_by, write_local
    from mpistrat.sites.lookup import file_of

    if not examination.corrections:
        print(f"the file of {name} needs no correction here", file=sys.stderr)
        return
    job = examination.job
    file = write_local(
        file_of(name), examination.corrections, measured_by(job), examination.date.date()
    )
    keys = ", ".join(examination.corrections)
    print(f"wrote {file}: {keys}", file=sys.stderr)
