"""List the directives that every Slurm job has, whatever its site."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpistrat.errors import UsageError
from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options
from mpistrat.sites.rendering.quoting import checked_line, directive_value
from mpistrat.sites.rendering.scheduler.signals import signal_line
from mpistrat.sites.schema import Site

__all__ = ["slurm_defaults"]

_ARRAY = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%[1-9]\d*)?")


def slurm_defaults(site: Site, options: Options, layout: Layout, launcher: str) -> Iterator[Line]:
    """Yield the directives of a Slurm job that its site does not state."""
    yield _name(options)
    if options.array is not None:
        if not _ARRAY.fullmatch(options.array):
            raise UsageError(
                f"--array {options.array!r}: expected indices such as 0-7, 1,3,5 or 0-99%4"
            )
        yield by_option("--array", f"--array={options.array}")
    yield by_option("--nodes", f"--nodes={layout.nodes}")
    yield from _tasks(layout, launcher)
    yield from _gpus(site, options, layout)
    if options.time:
        time = walltime.clock(walltime.seconds(options.time))
        yield by_option("--time", f"--time={time}")
    yield from _account_and_partition(site, options)
    output = "%x-%A_%a.out" if options.array else "%x-%j.out"
    yield by_default(f"--output={output}", "the job's name and number")
    again = "a job that is started again goes on in the same file"
    yield by_default("--open-mode=append", again, again)
    asked = "scontrol requeue, at the end of this script, works for such jobs"
    yield by_default("--requeue", asked)
    yield from signal_line(site, options, layout, launcher)


def _name(options: Options) -> Line:
    name = checked_line("--name", options.job_name)
    if "/" in name:
        raise UsageError(f"--name {name!r}: the output's file is named after it; leave out '/'")
    text = f"--job-name={directive_value(name)}"
    return by_option("--name", text) if options.name else by_default(text, "the program's name")


def _tasks(layout: Layout, launcher: str) -> Iterator[Line]:
    per_node = layout.tasks
    if launcher == "ibrun":  # whose documents give nodes and tasks
        yield Line(f"--ntasks={layout.ranks}", per_node.comment, per_node.explanation)
        return
    text = f"--ntasks-per-node={layout.tasks_per_node}"
    yield Line(text, per_node.comment, per_node.explanation)
    if not layout.is_even:
        yield by_option("--ranks", f"--ntasks={layout.ranks}")
    cpus = layout.cpus
    yield Line(f"--cpus-per-task={layout.cpus_per_task}", cpus.comment, cpus.explanation)


def _gpus(site: Site, options: Options, layout: Layout) -> Iterator[Line]:
    """Yield the directive that asks for GPUs, where one is needed."""
    flag, has = site.batch.gpu_flag, site.node.gpus
    if not layout.gpus:
        return
    if flag is None:
        if has is None:
            yield by_option("--gpus", f"--gpus-per-node={layout.gpus}")
        elif has.value != layout.gpus:
            raise UsageError(
                f"--gpus {layout.gpus}: jobs on {site.name} get whole nodes of {has.value} GPUs;"
                " leave it out"
            )
        return
    text = flag.value.replace("{gpus}", str(layout.gpus * layout.nodes))  # of the whole job
    if options.gpus is not None and text == flag.value:
        text = re.sub(r"\d+$", str(layout.gpus), text)
    yield by_site(site, flag, text)


def _account_and_partition(site: Site, options: Options) -> Iterator[Line]:
    default = site.batch.default_partition
    for name, text in (("account", options.account), ("partition", options.partition)):
        if text is not None:
            value = directive_value(checked_line(f"--{name}", text))
            yield by_option(f"--{name}", f"--{name}={value}")
        elif name == "partition" and default:
            yield by_site(site, default, f"--partition={directive_value(default.value)}")
