"""Compare which backend each rank asks for, before the ranks begin to make it.

Each backend brings its ranks together in its own way: ranks that make different ones would wait
for each other until a deadline, and could not say why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.backends.mpi import gather_before
from mpistrat.errors import ClusterError

__all__ = ["compare_names"]

_NAME_BYTES = 32
_REFUSED = ""


def compare_names(comm: Any, name: str | None, timeout: float) -> bool:
    """Return whether all ranks of an MPI communicator can open the backend `name`. **Collective.**

    Parameters
    ----------
    comm
        The mpi4py communicator; 32 bytes a rank are gathered over it.
    name
        What this rank opens; None if it refuses to.
    timeout
        Seconds to wait for the others.

    Raises
    ------
    ClusterError
        On all ranks: they ask for different backends.
    """
    mine = np.frombuffer(
        (name or _REFUSED).encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"), np.uint8
    )
    table = np.empty((comm.size, _NAME_BYTES), np.uint8)
    gather_before(comm, mine, table, timeout)
    if (table == mine).all():
        return name is not None
    names = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in table]
    if _REFUSED not in names:
        raise ClusterError(_differences(names))
    return False


def _differences(names: list[str]) -> str:
    ranks = {name: [r for r, one in enumerate(names) if one == name] for name in sorted({*names})}
    found = "; ".join(f"{name!r} on ranks {asking}" for name, asking in ranks.items())
    return (
        f"the ranks ask for different backends: {found}; give all ranks the same backend= and the"
        " same MPISTRAT_BACKEND"
    )
