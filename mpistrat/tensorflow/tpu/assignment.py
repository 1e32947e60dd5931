"""Compute which TPU cores make up a replica, with TensorFlow's code, on any machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.private import tpu as private_tpu

__all__ = ["device_assignment", "topology_of"]


def topology_of(mesh_shape: Sequence[int], hosts: int = 1) -> Any:
    """Return the tf.tpu.experimental.Topology of a TPU type; no TPU is needed. **Local.**

    Parameters
    ----------
    mesh_shape
        Chips in x, y and z, and cores of a chip, such as ``[2, 2, 1, 2]`` of a v3-8.
    hosts
        Machines, which have equal blocks of chips: as near to a square in x and y as there is,
        such as the 2 x 2 chips of a host of a v3-32. Blocks are counted along x, then y and z.

    Raises
    ------
    UsageError
        There is no such mesh, or it cannot be cut into such blocks.
    """
    shape = list(mesh_shape)
    if len(shape) != 4 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise UsageError(f"mesh_shape={shape}; expected four positive numbers: x, y, z and cores")
    block = _block(shape, hosts)
    by_host = [
        [[*place, core] for place in _grid(block, corner) for core in range(shape[3])]
        for corner in _grid([n // size for n, size in zip(shape, block, strict=False)], [0] * 3)
    ]
    return tf.tpu.experimental.Topology(mesh_shape=shape, device_coordinates=by_host)


def _block(shape: Sequence[int], hosts: int) -> Sequence[int]:
    """Return the shape of a host's block of chips in x, y and z."""
    ways = [[n for n in range(1, size + 1) if size % n == 0] for size in shape[:3]]
    chips = math.prod(shape[:3])
    blocks = [one for one in itertools.product(*ways) if math.prod(one) * hosts == chips]
    if not blocks:
        raise UsageError(
            f"{chips} chips of mesh_shape={list(shape)} on hosts={hosts}; expected a divisor that"
            " leaves each host a block of chips"
        )
    return min(blocks, key=lambda one: (one[2], max(one[:2]), one))


def _grid(size: Sequence[int], corner: Sequence[int]) -> list[list[int]]:
    """Return the coordinates of a block whose corner is counted in blocks, x fastest."""
    x, y, z = (range(n * first, n * first + n) for n, first in zip(size, corner, strict=True))
    return [[i, j, k] for k in z for j in y for i in x]


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
    """Return the device assignment that an argument is, or that it computes of a topology."""
    if given is None or private_tpu.is_device_assignment(given):
        return given
    if not callable(given):
        raise UsageError(
            f"experimental_device_assignment={given!r}; expected a DeviceAssignment, or a function"
            " that returns one for the topology"
        )
    return assigned(given(topology), topology)
