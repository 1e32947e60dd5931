"""MPI libraries, and the types of ``srun --mpi=`` that start each of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

__all__ = ["Library", "fitting_type", "library_kind", "read_types", "understood_types"]

Library = Literal["MPICH", "Open MPI", "Intel MPI", "Cray MPICH", "MVAPICH", ""]

# How version texts begin, those that contain another one first.
_BANNERS: tuple[tuple[str, Library], ...] = (
    ("CRAY MPICH", "Cray MPICH"),
    ("Intel(R) MPI", "Intel MPI"),
    ("MVAPICH", "MVAPICH"),
    ("Open MPI", "Open MPI"),
    ("MPICH", "MPICH"),
)
_TYPES: dict[Library, tuple[str, ...]] = {
    "MPICH": ("pmi2", "pmix"),
    "Open MPI": ("pmix",),
    "Intel MPI": ("pmi2",),
    "Cray MPICH": ("cray_shasta", "pmi2"),
    "MVAPICH": ("pmi2", "pmix"),
}


def library_kind(version_text: str) -> Library:
    """Return whose an MPI library is, from the text of MPI_Get_library_version."""
    return next((kind for banner, kind in _BANNERS if banner in version_text), "")


def understood_types(version_text: str) -> tuple[str, ...]:
    """Return the types of ``--mpi`` that start a library, the best first; none if unknown."""
    if "Open MPI v4" in version_text:
        return ("pmix", "pmi2")  # Open MPI 5 has no PMI-2
    return _TYPES.get(library_kind(version_text), ())


def fitting_type(version_text: str, offered: Collection[str]) -> str:
    """Return the best type for a library among those that Slurm offers, or ""."""
    wanted = understood_types(version_text) or ("pmix", "pmi2")
    return next((name for name in wanted if name in offered), "")


def read_types(listed: str) -> tuple[str, ...]:
    """Return the types, "none" among them, in what ``srun --mpi=list`` prints on both streams.

    A title, then a name a line; old versions print ``srun:`` before each. A last line may have the
    versions of PMIx.
    """
    names = re.findall(r"^(?:srun:)?[ \t]*(\w+)[ \t]*$", listed, re.MULTILINE)
    special = re.search(r"specific pmix plugin versions available: (.*)", listed)
    names += special[1].replace(" ", "").split(",") if special else []
    return tuple(dict.fromkeys(names))
