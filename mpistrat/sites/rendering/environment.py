"""List what a script sets before the program starts: modules, variables, caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mpistrat.errors import UsageError
from mpistrat.sites.rendering.binding import gpu_order
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options
from mpistrat.sites.schema import Site
from mpistrat.sites.sourced import Sourced

__all__ = ["Environment", "environment_of"]

# A variable for each cache, its folder, and a variable by which a site has decided on it.
_CACHES = (
    ("CUPY_CACHE_DIR", "cupy", "CUPY_CACHE_DIR"),
    ("CUDA_CACHE_PATH", "cuda", "CUDA_CACHE_DISABLE"),
    ("TRITON_CACHE_DIR", "triton", "TRITON_HOME"),
)


@dataclass(frozen=True)
class Environment:
    """What a script sets.

    Attributes
    ----------
    modules
        Commands that load the site's software.
    exports
        ``NAME=value``, each exported.
    unset
        Variables that are taken away: those of ``--fallback``.
    when
        When the fallback is for.
    cache_folder
        Folder of each node for files that programs build for themselves, quoted.
    caches
        Variables that name such folders, and the folder's name.
    """

    modules: list[Line]
    exports: list[Line]
    unset: list[Line]
    when: str
    cache_folder: Line
    caches: Mapping[str, str]


def environment_of(site: Site, options: Options, layout: Layout) -> Environment:
    """Return what a script sets before the program starts. **Local.**

    Raises
    ------
    UsageError
        ``--fallback`` is asked for, and the site has none.
    """
    fallback = site.fallback if options.fallback else None
    if options.fallback and fallback is None:
        raise UsageError(f"--fallback: site {site.name} has no [fallback]; leave it out")
    exports = _site_variables(site, options)
    names = {line.text.partition("=")[0] for line in exports}
    return Environment(
        [*_modules(site, options)],
        [*_own_variables(site, options, layout, names), *exports],
        [by_site(site, name) for name in fallback.unset] if fallback else [],
        fallback.when.value if fallback else "",
        _cache_folder(site),
        {name: folder for name, folder, other in _CACHES if not {name, other} & names},
    )


def _modules(site: Site, options: Options) -> Iterator[Line]:
    for line in site.modules.lines:
        yield by_site(site, line)
    if options.container is not None and site.container:
        for line in site.container.modules:
            yield by_site(site, line)


def _site_variables(site: Site, options: Options) -> list[Line]:
    """Return the site's variables; those that the fallback replaces or takes away are not set."""
    values: dict[str, Sourced[str]] = {
        name: value
        for name, value in site.environment.items()
        if options.nodes >= (value.min_nodes or 1)
    }
    if options.container is not None and site.container:
        values.update(site.container.environment)
    if options.fallback and site.fallback:
        gone = {name.value for name in site.fallback.unset}
        values = {name: value for name, value in values.items() if name not in gone}
        values.update(site.fallback.set)
    return [
        by_site(site, value, f"{name}={_quoted(value.value)}") for name, value in values.items()
    ]


def _own_variables(
    site: Site, options: Options, layout: Layout, names: set[str]
) -> Iterator[Line]:
    order = gpu_order(site, options, layout)
    if order:
        yield Line(f"MPISTRAT_GPU_ORDER={order.text}", order.comment, order.explanation)
    if "OMP_NUM_THREADS" not in names:
        yield _threads(site, options, layout)
    why = "lines of output come as they are written"
    yield by_default("PYTHONUNBUFFERED=1", why, why)


def _threads(site: Site, options: Options, layout: Layout) -> Line:
    threads, cpus = site.tasks.omp_threads, site.tasks.cpus_per_task
    if options.cpus_per_task is not None:
        return by_option("--cpus-per-task", f"OMP_NUM_THREADS={layout.cpus_per_task}")
    if threads and (cpus is None or cpus.value == layout.cpus_per_task):
        return by_site(site, threads, f"OMP_NUM_THREADS={threads.value}")
    return by_default(f"OMP_NUM_THREADS={layout.cpus_per_task}", "as many threads as CPUs")


def _cache_folder(site: Site) -> Line:
    caches = site.storage.caches
    if caches:
        return by_site(site, caches, f'"{caches.value}/mpistrat-$USER"')
    return by_default('"/tmp/mpistrat-$USER"', "each node has a /tmp of its own")


def _quoted(value: str) -> str:
    """Return a site's value for the shell, which expands the variables in it."""
    plain = all(char.isalnum() or char in "_@%+=:,./-" for char in value)
    return value if plain and value.isascii() else f'"{value}"'
