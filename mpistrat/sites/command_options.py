"""Define the options of a job once, for each command that takes them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mpistrat.errors import UsageError
from mpistrat.sites.rendering.options import Options, Strategy, binding_of, strategy_of

__all__ = ["given", "job_options", "with_job_options"]

_ASKED, _STARTED = "What the job asks for", "How it is started"


@dataclass(frozen=True)
class _Option:
    """An option: its type, its text for --help and the part of the help where that is."""

    type: Any
    help: str
    panel: str = _ASKED
    default: Any = None
    names: tuple[str, ...] = ()

    def parameter(self, name: str) -> inspect.Parameter:
        """Return it as typer reads it from the signature of a command."""
        option = typer.Option(*self.names, help=self.help, rich_help_panel=self.panel)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.type, option],
        )


_TEXT, _NUMBER = str | None, int | None
_OPTIONS = {
    "site": _Option(_TEXT, "Name of the site, or a site file."),
    "strategy": _Option(
        _TEXT, f"Kind of job: {', '.join(strategy.value for strategy in Strategy)}."
    ),
    "nodes": _Option(int, "Nodes.", default=1),
    "tasks_per_node": _Option(_NUMBER, "Ranks of each node. Default: the site's."),
    "ranks": _Option(_TEXT, "Ranks of the job; for scaling those of its runs, as 1,2,4."),
    "cpus_per_task": _Option(_NUMBER, "CPUs of each rank. Default: the site's, or 1."),
    "gpus": _Option(_NUMBER, "GPUs on each node. Default: the site's."),
    "cpu_only": _Option(bool, "Use no GPU.", default=False, names=("--cpu-only",)),
    "time": _Option(_TEXT, "Longest time, as 1:30:00."),
    "account": _Option(_TEXT, "Account to charge."),
    "partition": _Option(_TEXT, "Partition, or queue of PBS Pro. Default: the site's."),
    "directives": _Option(
        list[str] | None,
        "Option of the scheduler that has none here, as --directive=--qos=debug; may come several"
        " times.",
        names=("--directive",),
    ),
    "name": _Option(_TEXT, "Name of the job. Default: the program's."),
    "array": _Option(_TEXT, "Indices of an array of runs, as 0-7%4."),
    "ps": _Option(_NUMBER, "Parameter servers."),
    "signal": _Option(
        _TEXT, "Signal that tells ranks to save, at seconds before the end. Default: USR1@300."
    ),
    "binding": _Option(
        _TEXT,
        "GPUs that a rank sees: full_view, all of its node, or isolated, one. Default: the site's",
        _STARTED,
    ),
    "mpi": _Option(
        _TEXT, "For srun --mpi=. Default: what fits this Python's MPI library.", _STARTED
    ),
    "python": _Option(
        _TEXT,
        "Python that runs the program. Default: this one; with --container python3 of the image.",
        _STARTED,
    ),
    "container": _Option(_TEXT, "Image to run the program in.", _STARTED),
    "stage_environment": _Option(
        _TEXT, "Folder of a Python environment, which each node gets on its own disk.", _STARTED
    ),
    "fallback": _Option(
        bool,
        "Set the site's variables for networks that hang.",
        _STARTED,
        default=False,
        names=("--fallback",),
    ),
}


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a job; it gets their values as its argument `job`."""

    @functools.wraps(command)
    def with_values(**values: Any) -> None:
        job = {name: values.pop(name) for name in _OPTIONS}
        command(job=job, **values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in own
        if parameter.name != "job"
    ]
    parameters += [option.parameter(name) for name, option in _OPTIONS.items()]
    with_values.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_values


def job_options(job: Mapping[str, Any], program: list[str] | None) -> Options:
    """Return what the user asks for.

    Raises
    ------
    UsageError
        There is no strategy, or a name is not known.
    """
    if job["strategy"] is None:
        raise UsageError(
            f"no --strategy; choose one of {', '.join(strategy.value for strategy in Strategy)}"
        )
    values = {name: value for name, value in job.items() if name != "site"}
    values["strategy"] = strategy_of(job["strategy"])
    values["binding"] = None if job["binding"] is None else binding_of(job["binding"])
    values["directives"] = tuple(job["directives"] or ())
    return Options(program=tuple(program or ()), **values)


def given(job: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that differ from their defaults, as they are typed."""
    return [
        (option.names or (f"--{name.replace('_', '-')}",))[0]
        for name, option in _OPTIONS.items()
        if job[name] != option.default and job[name] != []
    ]
