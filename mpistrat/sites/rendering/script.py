"""Render a job's script from a site, the user's options, and what is known of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mpistrat.errors import UsageError
from mpistrat.sites.rendering import binding
from mpistrat.sites.rendering.command_line import render_command
from mpistrat.sites.rendering.container import container_lines
from mpistrat.sites.rendering.environment import environment_of
from mpistrat.sites.rendering.launch import Mpi, launch_words
from mpistrat.sites.rendering.layout import Layout, layout_of
from mpistrat.sites.rendering.lines import Line
from mpistrat.sites.rendering.notices import notices_of
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.rendering.quoting import checked_line, shell_words
from mpistrat.sites.rendering.scheduler.directives import directives_of
from mpistrat.sites.rendering.scheduler.signals import goes_to_script, lead_line, signals_of
from mpistrat.sites.rendering.templates import filled
from mpistrat.sites.schema import Site

__all__ = ["Here", "Script", "render"]

_SUITE = ("mpistrat", "bench", "scale", "cluster")  # what scaling starts unless told otherwise
_COLLECTIVES = ("mpistrat", "bench", "collectives")
_END_S = 120  # of the job, left for the report; of a short job a quarter


@dataclass(frozen=True)
class Here:
    """What is known of the machine that renders.

    Attributes
    ----------
    python_folder
        Folder of the Python to run with, put first in the script's PATH; "" for the job's own.
    python
        Its name.
    mpi
        How its MPI library's ranks start.
    """

    python_folder: str = ""
    python: str = "python3"
    mpi: Mpi = field(default_factory=Mpi)


@dataclass(frozen=True)
class Script:
    """A script, and what the user should know of it."""

    text: str
    notices: tuple[str, ...] = ()


def render(
    site: Site, options: Options, here: Here | None = None, explain: bool = False
) -> Script:
    """Return the script of a job. **Local**; nothing is read, started or written.

    Parameters
    ----------
    site
        The machine.
    options
        The job.
    here
        The Python to run with.
    explain
        Whether each line is preceded by its origin.

    Raises
    ------
    UsageError
        The options do not fit together or to the site; the message says which to change.
    """
    here = here or Here()
    options = _checked(site, options)
    if options.container is not None:  # its MPI library is another, and so is its Python
        here = Here(python=options.python or "python3")
    layout = layout_of(site, options)
    context = _context(site, options, layout, here)
    text = _text(site, options, context, explain)
    named = [key for key in site.sources if f"{site.name}: {key}, " in text]
    context["sources"] = {key: site.sources[key] for key in named}
    return Script(
        _text(site, options, context, explain), notices_of(site, options, layout, here.mpi)
    )


def _text(site: Site, options: Options, context: dict[str, object], explain: bool) -> str:
    name, is_pbs = f"{options.strategy.value}.sh.j2", site.scheduler == "pbs"
    # Blanks at the ends of its lines stay: they may be those of a word of the program.
    return filled(name, context, explain=explain, above=is_pbs).rstrip("\n") + "\n"


def _checked(site: Site, options: Options) -> Options:
    """Return the options with the program to run, or refuse those that this site cannot do."""
    if not options.program:
        if options.strategy is not Strategy.SCALING:
            raise UsageError("no program to run: give it after --, such as -- train.py --epochs 3")
        # Of a container mpistrat would start the launcher, which is not in it.
        options = replace(options, program=_COLLECTIVES if options.container else _SUITE)
    if any("\0" in word for word in options.program) or not options.program[0]:
        raise UsageError(f"{options.program[0]!r}: expected a program to run, after --")
    _check_launcher(site, options)
    return options


def _check_launcher(site: Site, options: Options) -> None:
    """Refuse options for which the site has not the launcher or the scheduler."""
    launcher = site.launcher.command.value
    if options.mpi is not None and launcher != "srun":
        raise UsageError(
            f"--mpi {options.mpi} is for srun; {site.name} has {launcher}: leave it out"
        )
    if options.signal is not None and site.scheduler == "pbs":
        raise UsageError(f"--signal {options.signal}: PBS Pro sends no signal early; leave it out")
    if options.stage_environment is not None:
        checked_line("--stage-environment", options.stage_environment)
        if options.python is not None and "/" in options.python:
            raise UsageError(
                f"--python {options.python} and --stage-environment: choose one; the Python that"
                " is staged runs the program"
            )
        if site.scheduler != "slurm" or launcher != "srun":
            raise UsageError(
                f"--stage-environment goes by sbcast and srun; {site.name} has {launcher}: leave"
                " it out"
            )


def _context(site: Site, options: Options, layout: Layout, here: Here) -> dict[str, object]:
    """Return what templates can use."""
    container = container_lines(site, options, layout)
    launcher = here.mpi.launcher or site.launcher.command.value
    besides = [*container.directives, *_needs(site, options)]
    directives = directives_of(site, options, layout, launcher, besides)
    local = site.storage.node_local
    is_suite = options.strategy is Strategy.SCALING and options.program[:3] == _SUITE[:3]
    return {
        "base": f"{site.scheduler}.sh.j2",
        "site": site,
        "options": options,
        "layout": layout,
        "sources": site.sources,
        "command": render_command(site.name, options),
        "directives": directives,
        "environment": environment_of(site, options, layout),
        "lead": list(lead_line(directives)),
        "launcher": launcher,
        "start": launch_words(site, options, layout, here.mpi, container.flags),
        "container": container.words,
        "visible": binding.visible(site, options, layout),
        "program": "" if is_suite else shell_words(_program(options, here)),
        "suite": shell_words(options.program) if is_suite else "",
        "suite_options": _suite_options(options, layout) if is_suite else [],
        "path": shell_words([here.python_folder]) if _takes_path(options, here) else "",
        "stage": shell_words([options.stage_environment]) if options.stage_environment else "",
        "node_local": local.value if local else "/tmp",
        "forwards": goes_to_script(site, options, launcher),
        "signals": signals_of(directives),
    }


def _suite_options(options: Options, layout: Layout) -> list[str]:
    """Return the suite's options as words of the shell, without those that the user gives."""
    words = {
        "--launch": """--launch="$(printf '%q ' "${start[@]}" "${program[@]}")\"""",
        "--nodes": f"--nodes={layout.nodes}",
        "--per-node": f"--per-node={layout.tasks_per_node}",
        "--output": '--output="$results.jsonl"',
        "--report": '--report="$results.html"',
    }
    if options.ranks:  # else all powers of two, or the suite's own
        words["--ranks"] = f"--ranks={','.join(map(str, layout.sizes))}"
    if layout.duration_s is not None:
        words["--budget"] = f"--budget={layout.duration_s - min(_END_S, layout.duration_s // 4)}"
    given = {word.partition("=")[0] for word in options.program}
    if "-o" in given:
        given.add("--output")
    return [text for name, text in words.items() if name not in given]


def _needs(site: Site, options: Options) -> Iterator[Line]:
    """Yield the directive without which nodes have no disk of their own, where one is used."""
    local = site.storage.node_local
    if options.stage_environment is not None and local and local.needs:
        source = site.source_of(local)
        comment = f"{site.name}: {local.source}, {source.date or 'undated'}"
        yield Line(local.needs, comment, f"{site.name}, storage.node_local.needs: {source}")


def _takes_path(options: Options, here: Here) -> bool:
    return bool(here.python_folder) and options.container is None and not options.stage_environment


def _program(options: Options, here: Here) -> list[str]:
    """Return the words of the program: a script or an option is Python's."""
    first = options.program[0]
    is_pythons = first.endswith(".py") or first.startswith("-")
    return [here.python, *options.program] if is_pythons else list(options.program)
