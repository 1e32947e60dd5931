"""Backends by name. A backend is one line here, or an entry point ``mpistrat.backends``."""

from __future__ import annotations

import contextlib
import importlib
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

from mpistrat import config
from mpistrat.cluster import mpi
from mpistrat.cluster.topology import host_name
from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.control import Control, HasControl
from mpistrat.errors import (
    ArgumentTypeError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    MpistratError,
    UsageError,
)
from mpistrat.system import log

__all__ = ["Opened", "available_backends", "open_backend", "register_backend"]

_BACKENDS = {
    "auto": "mpistrat.collectives.backends.auto:Auto",
    "shm": "mpistrat.collectives.backends.shm:ShmBackend",
    "hierarchical": "mpistrat.collectives.backends.hierarchical:HierarchicalBackend",
    "mpi": "mpistrat.collectives.backends.mpi:MpiBackend",
    "horovod": "mpistrat.tensorflow.graph.horovod.backend:HorovodBackend",
    "threads": "mpistrat.collectives.backends.threads:ThreadsBackend",
}
_OF_THREADS = ("threads",)


class BackendClass(Protocol):
    """What a registered class offers besides the `Backend` protocol of its instances.

    Instances may have a `control` of their own (`HasControl`); others are given MPI's.
    """

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


class Opened(NamedTuple):
    """A backend, its control, and why this rank has to refuse what was asked for, if it has."""

    backend: Backend
    control: Control
    refusal: MpistratError | None = None


def open_backend(comm: Any, name: str) -> Opened:
    """Open the backend `name` over `comm` (see `Communicator`). **Collective.**

    If this rank has to refuse `name` while others may not, the backend is MPI's (or that of
    threads), through which to tell them.
    """
    comm = mpi.world() if comm is None else comm
    _set_rank_of_log(comm)
    chosen, refusal = _chosen(comm, name)
    meeting = _meeting_backend(comm)
    if meeting is not None:
        return _opened_by_all(comm, meeting, chosen, refusal)
    if refusal is not None:
        raise refusal
    return _opened(comm, chosen)


def _meeting_backend(comm: Any) -> BackendClass | None:
    """Return the backend by which the ranks of `comm` compare names; None for one rank."""
    for name in ("mpi", "threads") if comm is not None else ():
        if _load(name).unavailable(comm) is None:
            return _load(name) if comm.size > 1 else None
    return None


def _opened(comm: Any, chosen: str) -> Opened:
    backend = _load(chosen).open(comm, _timeout_s())
    return Opened(backend, _control(backend, comm))


def _opened_by_all(
    comm: Any, kind: BackendClass, chosen: str, refusal: MpistratError | None
) -> Opened:
    """Open a backend on several ranks, of which each may have `chosen` another one.

    Before that all ranks duplicate `comm`, whatever they have chosen: whoever gives up and comes
    again finds the others in a call of the same kind.
    """
    from mpistrat.collectives.backends import same_backend

    meeting: Any = kind.open(comm, _timeout_s())
    if not same_backend.compare_names(meeting, chosen, _timeout_s()):
        return Opened(meeting, meeting.control, refusal)
    try:
        backend = _over(_load(chosen), meeting, comm)
    except (BackendError, UsageError) as error:  # it fails on all ranks or on none
        return Opened(meeting, meeting.control, error)
    return Opened(backend, _control(backend, comm))


def _over(chosen: Any, meeting: Any, comm: Any) -> Backend:
    """Make a backend of ranks that have met; one of another's brings them together by itself."""
    # Not an inherited one: a subclass may open in another way.
    if "over" in vars(chosen) and mpi.is_mpi_comm(comm):
        made: Backend = chosen.over(meeting, _timeout_s())
        return made
    made = chosen.open(comm, _timeout_s())
    meeting.control.close()
    return made


def _set_rank_of_log(comm: Any) -> None:
    """Show this process's rank in COMM_WORLD in the log, whichever ranks `comm` has."""
    place = mpi.world_place()
    if mpi.is_mpi_comm(comm) and place is not None and place[1] > 1:
        with contextlib.suppress(UsageError):  # told with the other settings (settings_check.py)
            log.configure(*place, host_name())


def _chosen(comm: Any, name: str) -> tuple[str, MpistratError | None]:
    """Return the name of the backend that is meant, and why this rank refuses it, if it does."""
    try:
        return _usable_name(comm, name), None
    except (BackendError, UsageError) as error:
        return "", error


def _timeout_s() -> float:
    return config.valid_or(config.timeout_s, config.DEFAULT_TIMEOUT_S)


def _control(backend: Backend, comm: Any) -> Control:
    """Return the backend's own control; that of MPI (or of threads) if it brings none."""
    if isinstance(backend, HasControl):
        return backend.control
    # Over a duplicate of its own: its messages cannot meet those of the backend.
    name = "mpi" if mpi.is_mpi_comm(comm) else "threads"
    return _control(_load(name).open(comm, _timeout_s()), comm)


def _usable_name(comm: Any, name: str) -> str:
    """Return the name of the backend that `name` stands for here; raise if it cannot be used."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"backend={name!r} is a {type(name).__name__}; expected a str")
    if name == "auto":
        name = config.backend()
        _check_setting(name)
    if reason := _load(name).unavailable(comm):
        raise BackendUnavailableError(f"backend {name!r} cannot be used here: {reason}")
    return name


def _check_setting(name: str) -> None:
    """Refuse an unknown name of MPISTRAT_BACKEND, in words about the setting."""
    known = available_backends()
    if name != "auto" and name not in known:
        # Those of ranks as threads are no choice in a job of processes, which settings are for.
        between_processes = [one for one in known if one not in _OF_THREADS]
        raise BackendNotFoundError(
            f"MPISTRAT_BACKEND={name!r} is not known; expected auto,"
            f" {', '.join(between_processes)}; unset it or fix it"
        )


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
