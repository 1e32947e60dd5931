"""List the words of the command that starts the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mpistrat.errors import UsageError
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering import binding
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options, Strategy
from mpistrat.sites.rendering.quoting import expanded_words
from mpistrat.sites.schema import Site

__all__ = ["Mpi", "launch_words"]

_PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
_CRASH = "a rank that fails ends the step: others would wait"


@dataclass(frozen=True)
class Mpi:
    """How ranks start with the MPI library of this Python, as it was found on this machine.

    Attributes
    ----------
    launcher
        ``"srun"`` or ``"mpirun"``; ``""`` for the site's.
    type
        For ``srun --mpi=``; None for none.
    flags
        Of mpirun, with {tasks_per_node}.
    reason
        Why; it is printed, and part of ``--explain``.
    """

    launcher: str = ""
    type: str | None = None
    flags: tuple[str, ...] = ()
    reason: str = ""


def launch_words(
    site: Site, options: Options, layout: Layout, mpi: Mpi, container: Iterable[Line]
) -> list[Line]:
    """Return the launcher's command, a line for each of its options. **Local.**

    Parameters
    ----------
    container
        Options of the launcher for a container.
    """
    command = mpi.launcher or site.launcher.command.value
    values = _values(options, layout)
    own = list(_own_words(command, site, options, mpi))
    if command == site.launcher.command.value:
        start = by_site(site, site.launcher.command)
        flags = [by_site(site, flag, _filled(flag.value, values)) for flag in site.launcher.flags]
        flags += [*binding.node_flags(site, layout), *binding.gpu_flags(site, options, layout)]
    else:
        start = Line(command, mpi.reason, f"found here: {mpi.reason}")
        flags = [Line(_filled(flag, values), "", start.explanation) for flag in mpi.flags]
    counts = _without(_counts(command, options, layout, values), flags)
    return [start, *own, *counts, *_without(flags, own), *container]


def _without(lines: Iterable[Line], others: Iterable[Line]) -> list[Line]:
    """Return the lines whose options are not among those of others."""
    names = {option_name(other.text) for other in others}
    return [line for line in lines if option_name(line.text) not in names]


def _own_words(command: str, site: Site, options: Options, mpi: Mpi) -> Iterator[Line]:
    """Yield what srun is always given."""
    if command != "srun":
        return
    yield by_default(
        '--cpus-per-task="$SLURM_CPUS_PER_TASK"',
        "srun of Slurm 22.05 and 23.02 does not take it from the job; it is not exported, since"
        " from 23.11 two variables that differ are fatal",
    )
    yield by_default("--kill-on-bad-exit=1", f"{_CRASH} (Slurm's default is 0)", _CRASH)
    # CORE alone would keep the other two from ranks where Slurm passes all on.
    limits = "this script's limits hold for its ranks"
    why = f"{limits}: where Slurm has PropagateResourceLimits=NONE, it passes none on by itself"
    yield by_default('--propagate="CORE,NOFILE,STACK"', why, limits)
    if options.mpi is not None:
        yield by_option("--mpi", f"--mpi={_checked_type(options.mpi)}")
    elif mpi.type is not None:
        yield Line(f"--mpi={mpi.type}", mpi.reason, f"found here: {mpi.reason}")
    elif site.launcher.mpi and not mpi.launcher:
        type_of_site = site.launcher.mpi.value
        yield by_site(site, site.launcher.mpi, expanded_words(f"--mpi={type_of_site}"))


def _checked_type(text: str) -> str:
    """Return a type for ``srun --mpi=``, which needs no quotes in the script."""
    if not re.fullmatch(r"[A-Za-z0-9_.+-]+", text):
        raise UsageError(
            f"--mpi {text!r}: expected a type that `srun --mpi=list` names, such as pmix or pmi2;"
            " it has letters, digits and _.+- only"
        )
    return text


def _counts(
    command: str, options: Options, layout: Layout, values: dict[str, str]
) -> Iterator[Line]:
    """Yield the numbers of ranks, for a launcher that does not have them from the job."""
    is_suite = options.strategy is Strategy.SCALING
    if command == "srun" and is_suite:
        yield by_default("--exact", "a run has the CPUs of its ranks, no others")
        for option, name in (
            ("--nodes", "nodes"),
            ("--ntasks", "tasks"),
            ("--ntasks-per-node", "tasks_per_node"),
        ):
            yield Line(expanded_words(f"{option}={values[name]}"))
    elif command == "ibrun" and is_suite:
        yield Line(expanded_words(f"-n {values['tasks']}"))
        yield Line("-o 0")
    elif command in ("mpirun", "mpiexec"):
        yield Line(expanded_words(f"-n {values['tasks']}"))


def _values(options: Options, layout: Layout) -> dict[str, str]:
    """Return what stands for placeholders: numbers, or variables of the scaling suite's loop."""
    if options.strategy is Strategy.SCALING:
        counts = {"nodes": "$nodes", "tasks": "$ranks", "tasks_per_node": "$per_node"}
    else:
        counts = {
            "nodes": str(layout.nodes),
            "tasks": str(layout.ranks),
            "tasks_per_node": str(layout.tasks_per_node),
        }
    return {**counts, "cpus_per_task": str(layout.cpus_per_task)}


def _filled(text: str, values: dict[str, str]) -> str:
    return expanded_words(_PLACEHOLDER.sub(lambda found: values[found[1]], text))
