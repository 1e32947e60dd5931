"""Load Horovod's module for TensorFlow, or say how to get it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from mpistrat.cluster import mpi
from mpistrat.cluster.mpi_start import timed_start
from mpistrat.errors import BackendUnavailableError

__all__ = ["load", "why_not"]

_HOW = "build it for this environment with: mpistrat horovod build"


def load() -> Any:
    """Return the module ``horovod.tensorflow``. **Local.**

    Raises
    ------
    BackendUnavailableError
        It is not installed, or was built for another TensorFlow or MPI library.
    """
    reason = why_not()
    if reason is not None:
        raise BackendUnavailableError(f"Horovod cannot be used here: {reason}")
    return importlib.import_module("horovod.tensorflow")


def why_not() -> str | None:
    """Return why Horovod cannot be used here, and what to do; None if it can. **Local.**

    Starts MPI where a launcher started this process: Horovod finds the library that mpi4py has
    loaded. Elsewhere Horovod has nothing to carry, and is not loaded.
    """
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:  # a folder of that name, without modules
        return f"it is not installed; {_HOW}"
    if mpi.world() is None:
        return None
    try:
        horovod = importlib.import_module("horovod.tensorflow")
    except ImportError as error:
        return f"{error}; {_HOW}"
    except Exception as error:  # noqa: BLE001 - TensorFlow's errors for a library that does not fit
        return f"it was built for another TensorFlow ({str(error).splitlines()[0]}); {_HOW}"
    if not horovod.mpi_built():
        return f"it was built without MPI; {_HOW}"
    return _of_another_mpi()


def _of_another_mpi() -> str | None:
    libraries = {path.resolve().name for path in timed_start.loaded_libraries(["libmpi."])}
    if len(libraries) > 1:
        names = " and ".join(sorted(libraries))
        return f"it was built for another MPI library than mpi4py's ({names} are loaded); {_HOW}"
    return None
