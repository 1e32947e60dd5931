"""Parse device strings in TensorFlow's spelling, and complete short ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = ["canonical", "named_devices"]

_PATTERN = re.compile(
    r"(?:/job:(?P<job>\w+))?(?:/replica:\d+)?(?:/task:(?P<task>\d+))?"
    r"(?:/device:|/)?(?P<kind>[A-Za-z]+):(?P<index>\d+)",
)


def canonical(device: str, rank: int) -> str:
    """Return the full form ``/job:worker/replica:0/task:<rank>/device:CPU:0`` of `device`.

    Parameters
    ----------
    device
        ``"CPU:0"``, ``"/cpu:0"``, ``"/device:CPU:0"`` or a full form of this very rank.
    rank
        The rank that owns the device.
    """
    if not isinstance(device, str):
        raise ArgumentTypeError(f"device={device!r} is a {type(device).__name__}; expected a str")
    match = _PATTERN.fullmatch(device)
    if match is None or match["kind"].upper() not in ("CPU", "GPU"):
        raise UsageError(f"device={device!r} is no device; expected e.g. 'CPU:0' or 'GPU:1'")
    if (
        match["task"] is not None
        and match["job"] in (None, "worker")
        and int(match["task"]) != rank
    ):
        raise UsageError(
            f"device={device!r} belongs to rank {match['task']}, this is rank {rank}; expected"
            " this rank's own devices, e.g. 'CPU:0'"
        )
    return f"/job:worker/replica:0/task:{rank}/device:{match['kind'].upper()}:{match['index']}"


def named_devices(devices: Iterable[str], rank: int) -> tuple[str, ...]:
    """Return the full forms of devices of this rank: at least one, each once."""
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        kind = type(devices).__name__
        raise ArgumentTypeError(f"devices={devices!r} is a {kind}; expected a list of strings")
    names = tuple(canonical(device, rank) for device in devices)
    if not names:
        raise UsageError("devices=[] names no device; expected at least one, or None")
    if len(set(names)) != len(names):
        raise UsageError(f"devices={list(names)} names a device twice; expected each once")
    return names
