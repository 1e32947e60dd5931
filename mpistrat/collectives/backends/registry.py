"""Backends by name. A backend is one line here, or an entry point ``mpistrat.backends``."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Protocol, cast

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.collectives.backends.base import Backend
from mpistrat.errors import (
    ArgumentTypeError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    MpistratError,
    UsageError,
)

__all__ = ["available_backends", "open_backend", "register_backend"]

_BACKENDS = {
    "auto": "mpistrat.collectives.backends.auto:Auto",
    "shm": "mpistrat.collectives.backends.shm:ShmBackend",
    "hierarchical": "mpistrat.collectives.backends.hierarchical:HierarchicalBackend",
    "mpi": "mpistrat.collectives.backends.mpi:MpiBackend",
    "threads": "mpistrat.collectives.backends.threads:ThreadsBackend",
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
    return tuple(sorted({*_BACKENDS, *_outside()} - {"auto"}))


@lru_cache(maxsize=1)
def _outside() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return {point.name: point.value for point in entry_points(group="mpistrat.backends")}


def open_backend(comm: Any, name: str) -> tuple[Backend, MpistratError | None]:
    """Open the backend `name` over `comm` (see `Communicator`). **Collective.**

    Returns
    -------
    tuple
        The backend, and None. If this rank has to refuse `name` while others may not: MPI's
        backend, through which to tell them, and the error.
    """
    comm = mpi.world() if comm is None else comm
    try:
        return _class(comm, name).open(comm, config.timeout_s()), None
    except (BackendError, UsageError) as error:
        if not mpi.is_mpi_comm(comm) or comm.size == 1:
            raise
        return _load("mpi").open(comm, config.timeout_s()), error


def _class(comm: Any, name: str) -> BackendClass:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"backend={name!r} is a {type(name).__name__}; expected a str")
    if name == "auto":
        name = config.backend()
    backend_class = _load(name)
    if reason := backend_class.unavailable(comm):
        raise BackendUnavailableError(f"backend {name!r} cannot be used here: {reason}")
    return backend_class


def _load(name: str) -> BackendClass:
    target = _BACKENDS.get(name) or _outside().get(name)
    if target is None:
        known = ", ".join(available_backends())
        raise BackendNotFoundError(f"backend={name!r} is not known; expected auto, {known}")
    module, _, attribute = target.partition(":")
    try:
        return cast(BackendClass, getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise BackendUnavailableError(f"backend {name!r} cannot be loaded: {error}") from error
