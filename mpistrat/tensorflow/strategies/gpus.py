"""Find out whether the ranks of a strategy combine TensorFlow's tensors on their GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from mpistrat.system.log import get_logger, warn_once

__all__ = ["RankGpus", "WhyNot", "are_used", "of_this_rank"]

_LOG = get_logger(__name__)

WhyNot: TypeAlias = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True)
class RankGpus:
    """What one rank tells the others of its devices.

    Attributes
    ----------
    num_devices
        Number of its replicas.
    num_gpus
        How many of these are on GPUs.
    why_not
        What keeps it from combining tensors on these GPUs, if anything does.
    """

    num_devices: int
    num_gpus: int
    why_not: str | None = None


def of_this_rank(size: int, devices: Sequence[str], why_not: WhyNot) -> RankGpus:
    """Look at the devices of this rank, one of `size`. **Local.**"""
    gpus = [name for name in devices if tf.DeviceSpec.from_string(name).device_type == "GPU"]
    reason = why_not(gpus) if gpus and size > 1 else None
    return RankGpus(len(devices), len(gpus), reason)


def are_used(everyone: Sequence[RankGpus]) -> bool:
    """Tell whether all ranks combine tensors on GPUs; warn once if some have GPUs in vain."""
    if len(everyone) == 1 or not any(one.num_gpus for one in everyone):
        return False
    # A rank without GPUs has its tensors on the host, so the others bring theirs there.
    reasons = {
        rank: one.why_not if one.num_gpus else "it has no replica on a GPU"
        for rank, one in enumerate(everyone)
        if one.why_not is not None or not one.num_gpus
    }
    if not reasons:
        return True
    rank, reason = next(iter(reasons.items()))
    text = (
        "TensorFlow's tensors on GPUs are combined over the host:"
        f" {len(reasons)} of {len(everyone)} ranks cannot do it on GPUs; rank {rank}: {reason}"
    )
    warn_once(_LOG, "tensors on GPUs", text)
    return False
