"""List the directives of a job: the defaults, the site's, and the user's, one for each option."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mpistrat.errors import UsageError
from mpistrat.sites.flags import option_name
from mpistrat.sites.rendering import walltime
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options
from mpistrat.sites.rendering.quoting import checked_line, directive_value, pbs_value
from mpistrat.sites.rendering.scheduler import flag_rules
from mpistrat.sites.rendering.scheduler.slurm_defaults import slurm_defaults
from mpistrat.sites.rendering.scheduler.user_directives import given_line
from mpistrat.sites.schema import Site
from mpistrat.sites.sourced import Sourced

__all__ = ["directives_of"]

_PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")


def directives_of(
    site: Site, options: Options, layout: Layout, launcher: str, besides: Iterable[Line]
) -> list[Line]:
    """Return the directives of a job, without ``#SBATCH`` or ``#PBS``. **Local.**

    Parameters
    ----------
    launcher
        The command that starts the ranks.
    besides
        Directives that other parts of the script need, as a container does.

    Raises
    ------
    UsageError
        The site forbids one that the user gave, or requires one that is missing; or the user gave
        one that has an option of its own.
    """
    if site.scheduler == "slurm":
        defaults = slurm_defaults(site, options, layout, launcher)
    else:
        defaults = _pbs_defaults(options)
    of_site = _of_site(site, options, layout)
    given = [given_line(site.scheduler, text) for text in options.directives]
    lines = flag_rules.merged(site, defaults, of_site, besides, given)
    lines = flag_rules.allowed(site, lines)
    flag_rules.check_required(site, lines)
    return lines


def _pbs_defaults(options: Options) -> Iterator[Line]:
    name = checked_line("--name", options.job_name)
    yield Line(f"-N {pbs_value('--name', name)}")
    yield by_default("-j oe", "one file for both outputs", "one file for both outputs")
    if options.array:
        _check_array(options.array)
        yield by_option("--array", f"-J {options.array}")


def _of_site(site: Site, options: Options, layout: Layout) -> Iterator[Line]:
    """Yield the site's directives for which there are values."""
    values = _values(site, options, layout)
    for value in site.batch.lines:
        text = _filled(value.value, values)
        is_for_gpus = "gpu" in option_name(value.value, site.scheduler)
        if text is not None and (layout.gpus or not is_for_gpus):
            yield by_site(site, value, text)
    if site.signal.requeue_flag:
        yield by_site(site, site.signal.requeue_flag)


def _values(site: Site, options: Options, layout: Layout) -> Mapping[str, str | None]:
    """Return what stands for each placeholder; None where nobody gave it."""
    quote = directive_value if site.scheduler == "slurm" else _plain
    partition = options.partition or _value(site.batch.default_partition)
    given = {"account": options.account, "partition": partition}
    time = walltime.clock(layout.duration_s) if layout.duration_s else None
    return {
        **{name: text and quote(checked_line(f"--{name}", text)) for name, text in given.items()},
        "walltime": time or _value(site.walltime.default),
        "nodes": str(layout.nodes),
    }


def _plain(text: str) -> str:
    return pbs_value("option", text)


def _value(value: Sourced[str] | None) -> str | None:
    return value.value if value else None


def _filled(text: str, values: Mapping[str, str | None]) -> str | None:
    names = _PLACEHOLDER.findall(text)
    if any(values[name] is None for name in names):
        return None
    return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), text)


def _check_array(array: str) -> None:
    if not re.fullmatch(r"\d+-\d+(:\d+)?(%\d+)?", array):
        raise UsageError(f"--array {array!r}: PBS Pro takes FIRST-LAST, such as 0-7")
