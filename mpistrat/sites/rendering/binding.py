"""Give each rank of a node its CPUs and its GPU, by the site's map of local ranks."""

from __future__ import annotations

from collections.abc import Iterator

from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Binding, Options
from mpistrat.sites.rendering.quoting import expanded_words
from mpistrat.sites.schema import Site

__all__ = ["gpu_flags", "gpu_order", "mode_of", "node_flags", "visible"]


def mode_of(site: Site, options: Options) -> Binding:
    """Return how ranks find their GPU: as the user says, as the site says, or in full view."""
    return options.binding or _sites_mode(site)


def gpu_flags(site: Site, options: Options, layout: Layout) -> Iterator[Line]:
    """Yield the launcher's options for GPUs."""
    if not layout.gpus:
        return
    is_isolated = mode_of(site, options) is Binding.ISOLATED
    flags = site.binding.isolated_flags if is_isolated else site.binding.full_view_flags
    yield from (by_site(site, flag, expanded_words(flag.value)) for flag in flags)
    # A site whose ranks are isolated by default needs no option for it.
    is_wish = options.binding is Binding.ISOLATED and _sites_mode(site) is not Binding.ISOLATED
    if is_wish and not flags and visible(site, options, layout) is None:
        yield by_option("--binding isolated", "--gpus-per-task=1")


def node_flags(site: Site, layout: Layout) -> Iterator[Line]:
    """Yield the launcher's options for nodes that are as full as the site's maps."""
    full = site.tasks.per_node
    if full and full.value == layout.tasks_per_node and layout.is_even:
        yield from (
            by_site(site, flag, expanded_words(flag.value))
            for flag in site.binding.full_node_flags
        )


def gpu_order(site: Site, options: Options, layout: Layout) -> Line | None:
    """Return the GPU of each local rank, for ranks that see all, unless rank r takes GPU r."""
    order = site.binding.gpu_of_local_rank
    if not order or mode_of(site, options) is Binding.ISOLATED or layout.gpus != len(order.value):
        return None
    if list(order.value) == sorted(order.value):
        return None
    return by_site(site, order, ",".join(map(str, order.value)))


def visible(site: Site, options: Options, layout: Layout) -> tuple[Line, Line, str] | None:
    """Return variable, GPUs by local rank and the local rank's variable, where a shell binds.

    It does so where ranks are to see one GPU each, and the launcher has no option for it.
    """
    binding, local_rank = site.binding, site.launcher.local_rank_variable
    if mode_of(site, options) is not Binding.ISOLATED or not layout.gpus:
        return None
    if binding.isolated_flags or not binding.visible_variable or not local_rank:
        return None
    variable = by_site(site, binding.visible_variable)
    order = binding.gpu_of_local_rank
    if order and layout.gpus == len(order.value):
        gpus = by_site(site, order, " ".join(map(str, order.value)))
    else:
        numbers = " ".join(map(str, range(layout.gpus)))
        gpus = by_default(numbers, "local rank r takes GPU r")
    return variable, gpus, local_rank.value


def _sites_mode(site: Site) -> Binding:
    mode = site.binding.mode
    return Binding(mode.value) if mode else Binding.FULL_VIEW
