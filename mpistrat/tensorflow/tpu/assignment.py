"""Which cores of a TPU make up a replica; TensorFlow computes it, wherever this runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow import private_tpu

__all__ = ["device_assignment", "topology_of"]


def topology_of(mesh_shape: Sequence[int], hosts: int = 1) -> Any:
    """Return the tf.tpu.experimental.Topology of a TPU that need not be here. **Local.**

    Parameters
    ----------
    mesh_shape
        Chips in x, y and z, and cores of a chip, such as ``[2, 2, 1, 2]`` of a v3-8.
    hosts
        Machines, which have equal shares of the cores: the first ones of x, then of y and z.

    Raises
    ------
    UsageError
        There is no such mesh, or its cores cannot be shared equally.
    """
    shape = list(mesh_shape)
    if len(shape) != 4 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise UsageError(f"mesh_shape={shape}; expected four positive numbers: x, y, z and cores")
    x, y, z, cores = shape
    total = x * y * z * cores
    if hosts < 1 or total % hosts:
        raise UsageError(
            f"{total} cores of mesh_shape={shape} on {hosts} hosts; expected a divisor"
        )
    places = [
        [i, j, k, core]
        for k in range(z)
        for j in range(y)
        for i in range(x)
        for core in range(cores)
    ]
    share = total // hosts
    by_host = [places[host * share : (host + 1) * share] for host in range(hosts)]
    return tf.tpu.experimental.Topology(mesh_shape=shape, device_coordinates=by_host)


def device_assignment(
    topology: Any,
    computation_shape: Sequence[int] | None = None,
    num_replicas: int = 1,
    **how: Any,
) -> Any:
    """Return a tf.tpu.experimental.DeviceAssignment. **Local.**

    Parameters
    ----------
    topology
        What initializing a TPU returned, or `topology_of`.
    computation_shape
        Cores of a replica in x, y, z and core: their product is its number of logical devices.
    num_replicas
        How many replicas are to fit.
    **how
        ``computation_stride`` and ``device_order_mode`` of ``DeviceAssignment.build``.

    Raises
    ------
    UsageError
        They do not fit. It names the topology's shape.

    References
    ----------
    tf.tpu.experimental.DeviceAssignment.
    """
    try:
        return tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=computation_shape, num_replicas=num_replicas, **how
        )
    except (ValueError, TypeError) as error:
        mesh = getattr(topology, "mesh_shape", None)
        raise UsageError(
            f"device assignment of {num_replicas} replicas, computation_shape={computation_shape},"
            f" in a topology of {mesh if mesh is None else mesh.tolist()}: {error}"
        ) from error


def assigned(given: Any, topology: Any) -> Any:
    """Return what a strategy takes of an assignment, or of a function of the topology."""
    if given is None or private_tpu.is_device_assignment(given):
        return given
    if not callable(given):
        raise UsageError(
            f"experimental_device_assignment={given!r}; expected a DeviceAssignment, or a function"
            " that returns one for the topology"
        )
    return assigned(given(topology), topology)
