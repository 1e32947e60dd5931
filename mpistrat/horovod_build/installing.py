"""Install a wheel of Horovod into the running environment, and tell whether one is there."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from pathlib import Path

from mpistrat.horovod_build.logged_commands import run_logged
from mpistrat.horovod_build.pip_command import pip

__all__ = ["install", "installed_from"]

_ADVICE = "install into a virtual environment that you can write to, with PyPI within reach"


def install(wheel: Path, log: Path, timeout_s: float) -> None:
    """Install a wheel in place of any other Horovod, and the packages that it needs. **Local.**

    Raises
    ------
    BackendUnavailableError
        pip fails, as where the environment cannot be written to.
    """
    # First the wheel alone: to pip one of the same version is installed already, whatever MPI it
    # was built for, and to force its dependencies would replace NumPy, too.
    run_logged(
        pip("install", "--no-deps", "--force-reinstall", str(wheel)), log, timeout_s, _ADVICE
    )
    run_logged(pip("install", str(wheel)), log, timeout_s, _ADVICE)
    importlib.invalidate_caches()


def installed_from() -> str | None:
    """Return the address that the installed Horovod came from; None if there is none. **Local.**

    It is "" where pip did not note one, as of a package of an index.
    """
    try:
        note = importlib.metadata.distribution("horovod").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    return str(json.loads(note).get("url", "")) if note else ""
