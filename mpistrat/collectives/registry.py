"""Backends by name. A backend is one line here, or an entry point ``mpistrat.backends``."""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.log import get_logger, warn_once
from mpistrat.collectives.base import Backend
from mpistrat.errors import ArgumentTypeError, BackendNotFoundError, BackendUnavailableError

__all__ = ["available_backends", "open_backend", "register_backend"]

_LOG = get_logger(__name__)

_BACKENDS = {
    "mpi": "mpistrat.collectives.mpi:MpiBackend",
    "threads": "mpistrat.collectives.threads:ThreadsBackend",
}


class BackendClass(Protocol):
    """What a registered class offers besides the `Backend` protocol of its instances."""

    def unavailable(self, comm: Any) -> str | None:
        """Return why the backend cannot work over `comm` here, or None if it can."""
        ...

    def open(self, comm: Any, timeout: float) -> Backend:
        """Make a backend over a private duplicate of `comm`. **Collective.**"""
        ...


def register_backend(name: str, target: str) -> None:
    """Make a backend known under `name`.

    Parameters
    ----------
    name
        What users write as ``backend=``.
    target
        ``"module:Class"``, imported when the backend is first used.
    """
    if ":" not in target:
        raise ArgumentTypeError(f"target={target!r}: expected 'module:Class'")
    _BACKENDS[name] = target


def available_backends() -> tuple[str, ...]:
    """Return the names of all registered backends."""
    return tuple(sorted({*_BACKENDS, *_outside()}))


@lru_cache(maxsize=1)
def _outside() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group="mpistrat.backends")}


def open_backend(comm: Any, name: str) -> Backend:
    """Open the backend `name` over `comm` (see `Communicator`). **Collective.**"""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"backend={name!r} is a {type(name).__name__}; expected a str")
    comm = mpi.world() if comm is None else comm
    if name == "auto":
        name = config.backend()
    if name == "auto":
        name = _choose(comm)
    backend_class = _load(name)
    if reason := backend_class.unavailable(comm):
        raise BackendUnavailableError(f"backend {name!r} cannot be used here: {reason}")
    return backend_class.open(comm, config.timeout_s())


def _choose(comm: Any) -> str:
    """Return the best backend for `comm`, and log the choice once."""
    name = "mpi" if mpi.is_mpi_comm(comm) else "threads"
    warn_once(_LOG, f"choice of {name}", f"backend 'auto' is {name!r}", level="INFO")
    return name


def _load(name: str) -> BackendClass:
    target = {**_outside(), **_BACKENDS}.get(name)
    if target is None:
        known = ", ".join(available_backends())
        raise BackendNotFoundError(f"backend={name!r} is not known; expected auto, {known}")
    module, _, attribute = target.partition(":")
    try:
        return cast(BackendClass, getattr(importlib.import_module(module), attribute))
    except ImportError as error:
        raise BackendUnavailableError(f"backend {name!r} cannot be loaded: {error}") from error
