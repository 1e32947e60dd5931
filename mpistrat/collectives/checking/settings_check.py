"""Compare versions and settings of all ranks when a communicator is made."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpistrat import __version__, config
from mpistrat.cluster import mpi
from mpistrat.cluster.launcher import mpi_agreement
from mpistrat.cluster.launcher.mpi_agreement import Announced
from mpistrat.cluster.topology import host_name
from mpistrat.collectives.health import timeline
from mpistrat.errors import ClusterError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["Facts", "check", "facts"]

_LOG = get_logger(__name__)


@dataclass(frozen=True)
class Facts:
    """What one rank says of itself.

    Attributes
    ----------
    host
        A name that ranks share if and only if they share a machine.
    versions
        Versions and settings that must agree, by name.
    uid
        A number for the communicator that no other one has; rank 0's is taken.
    clock
        What makes its monotonic clock the time since 2025 (timeline.py).
    address
        Where its process answers those who miss it (stacks.py), or "".
    announced
        What its launcher told it.
    """

    host: str
    versions: dict[str, str] = field(default_factory=dict)
    uid: int = 0
    clock: int = 0
    address: str = ""
    announced: Announced = field(default_factory=Announced)


def facts(address: str = "") -> Facts:
    """Return what this rank has to say. **Local.**

    Raises
    ------
    UsageError
        One of its settings is wrong.
    """
    place = mpi.world_place()
    config.check_all(place[1] if place else 1)
    for name, setting in config.misspelt().items():
        warn_once(_LOG, f"misspelt {name}", f"{name} is no setting of mpistrat; is it {setting}?")
    versions = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "mpistrat": __version__,
        "numpy": np.__version__,
        **config.agreed_settings(),
    }
    announced = mpi_agreement.announced(place)
    # From 2 on: 0 is no number yet, and 1 stands for creations (deadlock.py).
    uid = secrets.randbits(62) + 2
    return Facts(host_name(), versions, uid, timeline.clock(), address, announced)


def check(everyone: Sequence[Facts]) -> None:
    """Raise `ClusterError` on every rank if versions or settings differ, listing them.

    It is raised, too, if launcher and MPI do not fit (`mpi_agreement.check`).
    """
    mpi_agreement.check([one.host for one in everyone], [one.announced for one in everyone])
    rows = []
    for name in sorted({name for one in everyone for name in one.versions}):
        values = [one.versions.get(name, "(unset)") for one in everyone]
        if len(set(values)) > 1:
            held = {v: [r for r, x in enumerate(values) if x == v] for v in dict.fromkeys(values)}
            rows.append(f"  {name}: " + "; ".join(f"{v} on ranks {r}" for v, r in held.items()))
    if rows:
        raise ClusterError(
            "the ranks of this job do not run the same software or settings:\n"
            + "\n".join(rows)
            + "\nstart all ranks in the same environment"
        )
