"""The model of a site file: its tables, and what has to hold between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mpistrat.sites import consistency
from mpistrat.sites.sourced import Environment, Key, Line, Source, Sourced, Table
from mpistrat.sites.tables import (
    Batch,
    Binding,
    Container,
    Fallback,
    Launcher,
    Modules,
    Network,
    Node,
    Nominal,
    Signal,
    Storage,
    Tasks,
    Walltime,
)

__all__ = ["Site"]


class Site(Table):
    """A machine with its scheduler, as one file describes it.

    Attributes
    ----------
    hosts
        Patterns (:mod:`fnmatch`) of the names of its hosts, by which a site is recognized.
    unknown
        What was looked for and that no source states.
    notes
        Advice that no other key can hold.
    """

    name: Key
    title: Line
    scheduler: Literal["slurm", "pbs"]
    hosts: tuple[Sourced[Line], ...] = ()
    sources: Annotated[dict[Key, Source], Field(min_length=1)]
    node: Node = Node()
    tasks: Tasks = Tasks()
    batch: Batch = Batch()
    launcher: Launcher
    binding: Binding = Binding()
    modules: Modules = Modules()
    environment: Environment
    fallback: Fallback | None = None
    network: Network = Network()
    storage: Storage = Storage()
    walltime: Walltime = Walltime()
    container: Container | None = None
    signal: Signal = Signal()
    nominal: Nominal = Nominal()
    unknown: tuple[Line, ...] = ()
    notes: tuple[Sourced[Line], ...] = ()

    def values(self) -> Iterator[tuple[str, Sourced[Any]]]:
        """Yield each value that is given, after its key: ``("batch.lines[0]", ...)``."""
        return consistency.values_of(self)

    def source_of(self, value: Sourced[Any]) -> Source:
        """Return the document that states a value of this site."""
        return self.sources[value.source]

    def forbids(self, directive: str) -> Sourced[str] | None:
        """Return what forbids a directive or an option here, or None."""
        return consistency.forbidding(directive, self.batch.forbidden, self.scheduler)

    @model_validator(mode="after")
    def _is_consistent(self) -> Site:
        values = list(self.values())
        consistency.check_sources(values, set(self.sources))
        consistency.check_forbidden(values, self.batch.forbidden, self.scheduler)
        consistency.check_placeholders(values)
        consistency.check_maps(self.tasks, self.node, self.binding)
        return self
