"""`CentralStorageStrategy`: variables once a node, read in place, or on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.cluster.devices.names import named_devices
from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError, ClusterError, UsageError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.central_storage.extended import CentralExtended
from mpistrat.strategy.central_storage.one_gpu import OneGpuExtended
from mpistrat.strategy.parameter_server.worker_context import refuse_collective
from mpistrat.strategy.replicas.devices import devices_of_ranks

__all__ = ["CentralStorageStrategy"]

_CPU = ("CPU:0",)


class CentralStorageStrategy(Strategy):
    """Replicas on all ranks of one node, which have each variable once, together.

    A variable is an array in memory that all ranks have mapped: reading it copies nothing, and
    it takes its bytes once, however many ranks there are. Changes are collective: what the
    replicas assign is combined by the variable's aggregation and applied once. A variable with
    ``synchronization=ON_READ`` still has a copy on each replica.

    A single replica that is on a GPU has its variables there: reading gives CuPy arrays and copies
    nothing, and gradients and values that are on the GPU stay there.

    Parameters
    ----------
    compute_devices
        This rank's devices, one replica each, as of `MirroredStrategy`.
    parameter_device
        Where variables are; default the only compute device of all ranks, or the CPU if there are
        several.
    comm, backend
        As of `MirroredStrategy`.

    Raises
    ------
    UsageError
        A device string is wrong, or `parameter_device` is a GPU but not the only replica's.
    ClusterError
        The ranks are on several nodes; or launcher and MPI do not fit together, or ranks run
        different versions.
    BackendUnavailableError
        The ranks cannot share memory by this backend; or a GPU is not there, or CuPy to use it.

    Notes
    -----
    **Collective** over `comm`, as are all assignments to its variables, also those across
    replicas and those by ``extended.update``.

    In a replica on a GPU that is the current one. If there are several replicas, what they read of
    variables is a copy there, and what they assign is combined on the GPUs and written to the
    host. Values are combined as by `MirroredStrategy`. docs/gpu.md says what has run on
    hardware.

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
            _check_place(parameter_device, communicator.rank)
        devices = devices_of_ranks(communicator, compute_devices)
        with communicator.checking():
            place = _parameter_device(devices[communicator.rank], parameter_device, communicator)
        if gpu_devices.gpu_index(place) is not None:
            self._extended = OneGpuExtended(self, communicator, devices)
            return
        _require_shared_memory(communicator)
        self._extended = CentralExtended(self, communicator, devices, place)


def _check_place(wanted: str | None, rank: int) -> None:
    """Raise unless the device for variables is None or a device string."""
    if wanted is not None:
        named_devices([wanted], rank)


def _parameter_device(devices: tuple[str, ...], wanted: str | None, comm: Communicator) -> str:
    """Return where variables are: a GPU only if the one replica in all is on it."""
    gpu = devices[0] if comm.size == 1 and len(devices) == 1 else None
    if wanted is None:
        is_beside = gpu is not None or (
            len(devices) == 1 and gpu_devices.gpu_index(devices[0]) is None
        )
        return devices[0] if is_beside else named_devices(_CPU, comm.rank)[0]
    place = named_devices([wanted], comm.rank)[0]
    if gpu_devices.gpu_index(place) is not None and place != gpu:
        raise UsageError(
            f"parameter_device={wanted!r}, where the replicas of rank {comm.rank}/{comm.size} are"
            f" on {', '.join(devices)}: only a single replica has its variables on a GPU, its own;"
            " those of several are in memory that all read in place; expected None or 'CPU:0'"
        )
    return place


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
        # A trial without any bytes, which fails if the backend shares no memory.
        communicator.empty(0, shared=True)
    except BackendUnavailableError as error:
        communicator.close()
        raise BackendUnavailableError(
            f"CentralStorageStrategy has its variables in memory that the ranks share, which"
            f" they cannot here: {error}; {instead}"
        ) from error
