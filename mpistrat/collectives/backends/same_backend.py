"""Compare which backend each rank asks for, before the ranks begin to make it.

Each backend brings its ranks together in its own way: ranks that make different ones would wait
for each other until a deadline, and could not say why.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.control import HasControl
from mpistrat.collectives.backends.shared_memory import bootstrap
from mpistrat.errors import ClusterError

__all__ = ["compare_names"]

_NAME_BYTES = 32
_REFUSED = ""


class BackendWithControl(Backend, HasControl, Protocol):
    """A backend that brings its control: MPI's, or that of threads."""


def compare_names(meeting: BackendWithControl, name: str, timeout: float) -> bool:
    """Return whether all ranks can make the backend `name`. **Collective.**

    Parameters
    ----------
    meeting
        The backend over which the ranks compare names: it gathers 32 bytes a rank.
    name
        What this rank asks for; "" if it refuses that.
    timeout
        Seconds to wait for the others.

    Raises
    ------
    ClusterError
        On all ranks, with `meeting` closed: they ask for different backends.
    """
    mine = np.frombuffer(name.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"), np.uint8)
    table = np.empty(meeting.size * _NAME_BYTES, np.uint8)
    with bootstrap.kept(mine, table):
        bootstrap.run(
            meeting.allgather(mine, table, [_NAME_BYTES] * meeting.size), timeout, meeting
        )
    rows = table.reshape(meeting.size, _NAME_BYTES)
    if (rows == mine).all():
        return name != _REFUSED
    names = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows]
    if _REFUSED not in names:
        meeting.control.close()
        raise ClusterError(_differences(names))
    return False


def _differences(names: list[str]) -> str:
    ranks = {name: [r for r, one in enumerate(names) if one == name] for name in sorted({*names})}
    found = "; ".join(f"{name!r} on ranks {asking}" for name, asking in ranks.items())
    return (
        f"the ranks ask for different backends: {found}; give all ranks the same backend= and the"
        " same MPISTRAT_BACKEND"
    )
