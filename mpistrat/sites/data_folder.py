"""Find the folder slurm/ with the files of sites and the templates of job scripts."""

from __future__ import annotations

from pathlib import Path

from mpistrat.errors import UsageError

__all__ = ["slurm_folder"]


def slurm_folder() -> Path:
    """Return the folder that holds ``sites/`` and ``templates/``. **Local.**

    In an installed package it is ``mpistrat/slurm``, in a checkout ``slurm`` beside the package.

    Raises
    ------
    UsageError
        Neither is there: the installation is not complete.
    """
    package = Path(__file__).resolve().parent.parent
    places = [parent / "slurm" for parent in (package, package.parent)]
    for place in places:
        if (place / "sites").is_dir():  # else it may be another project's package
            return place
    raise UsageError(
        f"found no files of sites: expected {places[0] / 'sites'} or {places[1] / 'sites'};"
        " install mpistrat anew from its wheel or its source distribution"
    )
