"""Check what the tables of a site file have to say to each other: sources, options, maps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from mpistrat.sites.flags import option_name
from mpistrat.sites.sourced import Sourced, Table
from mpistrat.sites.tables import Binding, Node, Tasks

__all__ = [
    "check_forbidden",
    "check_maps",
    "check_placeholders",
    "check_sources",
    "forbidding",
    "values_of",
]

_Values = Sequence[tuple[str, Sourced[Any]]]

_OPTIONS = re.compile(r"batch\.(lines|gpu)|signal\.(requeue_)?flag|(launcher|binding)\..*flags")
_PLACEHOLDERS = {
    "batch.lines": {"account", "partition", "nodes", "walltime"},
    "batch.gpu_flag": {"gpus"},
    "launcher.flags": {"nodes", "tasks", "tasks_per_node", "cpus_per_task"},
}
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def values_of(node: object, key: str = "") -> Iterator[tuple[str, Sourced[Any]]]:
    """Yield each value below a table, after its key in the file."""
    if isinstance(node, Sourced):
        yield key, node
    elif isinstance(node, Table):
        for name in type(node).model_fields:
            yield from values_of(getattr(node, name), f"{key}.{name}" if key else name)
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from values_of(value, f"{key}.{name}")
    elif isinstance(node, tuple):
        for index, value in enumerate(node):
            yield from values_of(value, f"{key}[{index}]")


def check_sources(values: _Values, defined: set[str]) -> None:
    """Refuse a source that is used and not defined, or defined and not used."""
    for key, value in values:
        if value.source not in defined:
            close = get_close_matches(value.source, sorted(defined), n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"{key}: source {value.source!r} is not in [sources], which has"
                f" {', '.join(sorted(defined))}{meant}"
            )
    unused = sorted(defined - {value.source for _, value in values})
    if unused:
        raise ValueError(f"sources.{unused[0]}: no value names this source; remove it")


def forbidding(
    directive: str, forbidden: Sequence[Sourced[str]], scheduler: str
) -> Sourced[str] | None:
    """Return the entry of `forbidden` that names a directive's option, or None."""
    name = option_name(directive, scheduler)
    return next((flag for flag in forbidden if option_name(flag.value, scheduler) == name), None)


def check_forbidden(values: _Values, forbidden: Sequence[Sourced[str]], scheduler: str) -> None:
    """Refuse a site that uses an option that it forbids."""
    for key, value in values:
        if not _OPTIONS.match(key):
            continue
        for word in re.findall(r"(?:^|(?<= ))-.*?(?= -|$)", value.value):
            if forbidding(word, forbidden, scheduler):
                raise ValueError(
                    f"{key} = {value.value!r}: {word!r} is in batch.forbidden; remove one"
                )


def check_placeholders(values: _Values) -> None:
    """Refuse a {name} that the renderer has no value for."""
    for key, value in values:
        if not isinstance(value.value, str):
            continue
        known = _PLACEHOLDERS.get(key.partition("[")[0], set())
        for name in re.findall(r"(?<!\$)\{(.*?)\}", value.value):  # ${NAME} is the shell's
            if name not in known:
                expected = ", ".join(f"{{{name}}}" for name in sorted(known)) or "no placeholder"
                raise ValueError(
                    f"{key} = {value.value!r}: {{{name}}} is unknown here; expected {expected}"
                )


def check_maps(tasks: Tasks, node: Node, binding: Binding) -> None:
    """Refuse maps of GPUs and CPUs that do not give each rank of a node its own."""
    gpus, cpus = binding.gpu_of_local_rank, binding.cpus_of_local_rank
    if gpus and sorted(gpus.value) != list(range(len(gpus.value))):
        raise ValueError(
            f"binding.gpu_of_local_rank = {list(gpus.value)}: expected each of 0 to"
            f" {len(gpus.value) - 1} once"
        )
    if gpus and node.gpus and len(gpus.value) > node.gpus.value:
        raise ValueError(
            f"binding.gpu_of_local_rank has {len(gpus.value)} GPUs, node.gpus {node.gpus.value}"
        )
    for name, lengths in (("gpu_of_local_rank", gpus), ("cpus_of_local_rank", cpus)):
        if lengths and tasks.per_node and len(lengths.value) != tasks.per_node.value:
            raise ValueError(
                f"binding.{name} is for {len(lengths.value)} ranks, tasks.per_node is"
                f" {tasks.per_node.value}; expected as many"
            )
    if cpus:
        _check_cpus(cpus.value)


def _check_cpus(lists: Sequence[str]) -> None:
    rank_of: dict[int, int] = {}
    for rank, text in enumerate(lists):
        if not _CPU_LIST.fullmatch(text):
            raise ValueError(
                f"binding.cpus_of_local_rank[{rank}] = {text!r}: expected CPUs such as '0-6,64-70'"
            )
        for cpu in _cpus(text):
            other = rank_of.setdefault(cpu, rank)
            if other != rank:
                raise ValueError(
                    f"binding.cpus_of_local_rank: CPU {cpu} is given to local ranks {other}"
                    f" and {rank}"
                )


def _cpus(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
