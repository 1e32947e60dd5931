"""Variables once on a node, read in place by the replicas of all its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.cluster.devices import local_devices
from mpistrat.collectives import Communicator
from mpistrat.errors import BackendUnavailableError, ClusterError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.central_extended import CentralExtended
from mpistrat.strategy.on_worker import refuse_collective

__all__ = ["CentralStorageStrategy"]


class CentralStorageStrategy(Strategy):
    """Replicas on all ranks of one node, which have each variable once, together.

    A variable is an array in memory that all ranks have mapped: reading it copies nothing, and
    it takes its bytes once, however many ranks there are. Changes are collective: what the
    replicas assign is combined by the variable's aggregation and applied once. A variable with
    ``synchronization=ON_READ`` still has a copy on each replica.

    Parameters
    ----------
    compute_devices
        This rank's devices, one replica each, such as ``["CPU:0", "CPU:1"]``; default one.
    parameter_device
        Where variables are; default the only compute device, or the CPU if there are several.
    comm, backend
        As of `MirroredStrategy`.

    Raises
    ------
    UsageError
        A device string is wrong.
    ClusterError
        The ranks are on several nodes; or launcher and MPI do not fit together, or ranks run
        different versions.
    BackendUnavailableError
        The ranks cannot share memory by this backend.

    Notes
    -----
    **Collective** over `comm`, as are all assignments to its variables, also those across
    replicas and those by ``extended.update``.

    References
    ----------
    tf.distribute.experimental.CentralStorageStrategy.
    """

    def __init__(
        self,
        compute_devices: Sequence[str] | None = None,
        parameter_device: str | None = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        refuse_collective("a CentralStorageStrategy", comm, is_local=True)
        communicator = Communicator(comm, backend)
        with communicator.checking():
            names = local_devices(compute_devices, communicator.rank)
            place = _parameter_device(names, parameter_device, communicator.rank)
        _require_shared_memory(communicator)
        self._extended = CentralExtended(self, communicator, names, place)


def _parameter_device(devices: tuple[str, ...], wanted: str | None, rank: int) -> str:
    """Return where variables are; a single device, a GPU too, has them beside its replica."""
    if wanted is None:
        return devices[0] if len(devices) == 1 else local_devices(None, rank)[0]
    return local_devices([wanted], rank)[0]


def _require_shared_memory(communicator: Communicator) -> None:
    """Raise on all ranks unless they can share memory; the communicator is closed then."""
    nodes = list(dict.fromkeys(communicator.topology.hostnames))
    instead = "use MirroredStrategy or MultiWorkerMirroredStrategy, which copy each variable"
    if len(nodes) > 1:
        communicator.close()
        raise ClusterError(
            f"CentralStorageStrategy has its variables in the memory of one node; these"
            f" {communicator.size} ranks are on {len(nodes)} nodes ({', '.join(nodes[:4])}"
            f"{', ...' if len(nodes) > 4 else ''}); {instead}"
        )
    try:
        communicator.empty(0, shared=True)
    except BackendUnavailableError as error:
        communicator.close()
        raise BackendUnavailableError(
            f"CentralStorageStrategy has its variables in memory that the ranks share, which"
            f" they cannot here: {error}; {instead}"
        ) from error
