"""Run the program in a container: what the runtime needs from the scheduler and the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mpistrat.errors import UsageError
from mpistrat.sites.rendering.layout import Layout
from mpistrat.sites.rendering.lines import Line, by_default, by_option, by_site
from mpistrat.sites.rendering.options import Options
from mpistrat.sites.rendering.quoting import (
    checked_line,
    directive_value,
    expanded_words,
    shell_words,
)
from mpistrat.sites.schema import Site
from mpistrat.sites.tables import Container

__all__ = ["ContainerLines", "container_lines"]

_OPTION = "--container"


@dataclass(frozen=True)
class ContainerLines:
    """The parts of a script that concern its container.

    Attributes
    ----------
    directives
        For the scheduler.
    flags
        For the launcher.
    words
        The command that stands before the program, word by word.
    """

    directives: list[Line] = field(default_factory=list)
    flags: list[Line] = field(default_factory=list)
    words: list[Line] = field(default_factory=list)


def container_lines(site: Site, options: Options, layout: Layout) -> ContainerLines:
    """Return what a script has for its container; nothing where there is none.

    Raises
    ------
    UsageError
        Another option contradicts the container.
    """
    if options.container is None:
        return ContainerLines()
    image = checked_line(_OPTION, options.container)
    if options.stage_environment is not None:
        raise UsageError(
            "--container and --stage-environment: choose one; an image has its own environment"
        )
    container = site.container
    runtime = container.runtime.value if container else "apptainer"
    of_site = container.flags if container else ()
    flags = [by_site(site, flag, expanded_words(flag.value)) for flag in of_site]
    word = by_option(_OPTION, shell_words([image]))
    if runtime == "shifter":
        directive = by_option(_OPTION, f"--image={directive_value(image)}")
        return ContainerLines([directive], words=[_command(site, container, "shifter"), *flags])
    if runtime == "pyxis":
        return ContainerLines(flags=[*_pyxis(word, container, site), *flags])
    if runtime == "container-engine":  # of CSCS: the image is named in an environment's file
        named = by_option(_OPTION, f"--environment={word.text}")
        return ContainerLines(flags=[named, *flags])
    words = [*_exec(site, container, runtime), *flags, *_graphics(layout, flags, site)]
    return ContainerLines(words=[*words, *_binds(site, container), word])


def _command(site: Site, container: Container | None, text: str) -> Line:
    if container:
        return by_site(site, container.runtime, text)
    return by_default(text, "the usual container runtime of clusters")


def _exec(site: Site, container: Container | None, runtime: str) -> Iterator[Line]:
    yield _command(site, container, f"{runtime} exec")
    here = "the job's folder, under its own name"
    yield by_default('--bind="$PWD"', here)
    yield by_default('--pwd="$PWD"', here)


def _graphics(layout: Layout, flags: list[Line], site: Site) -> Iterator[Line]:
    """Yield the option that shows the container the host's GPUs, unless the site has it."""
    variable = site.binding.visible_variable
    option = "--rocm" if variable and variable.value == "ROCR_VISIBLE_DEVICES" else "--nv"
    has_it = any({"--nv", "--rocm"} & set(flag.text.split()) for flag in flags)
    is_intel = variable is not None and variable.value == "ZE_AFFINITY_MASK"
    if layout.gpus and not has_it and not is_intel:
        yield by_default(option, "the host's GPU driver is seen in the container")


def _binds(site: Site, container: Container | None) -> Iterator[Line]:
    for bind in container.binds if container else ():
        yield by_site(site, bind, f'--bind="{bind.value}"')


def _pyxis(word: Line, container: Container | None, site: Site) -> Iterator[Line]:
    yield by_option(_OPTION, f"--container-image={word.text}")
    binds = [_mount(bind.value) for bind in container.binds] if container else []
    mounts = ",".join(["$PWD:$PWD", *binds])
    why = f"the job's folder, and the binds of {site.name}" if binds else "the job's folder"
    yield by_default(f'--container-mounts="{mounts}"', why)
    yield by_default('--container-workdir="$PWD"', "the job's folder, under its own name")


def _mount(bind: str) -> str:
    return bind if ":" in bind else f"{bind}:{bind}"
