"""`CommunicationOptions`: hints and deadlines for a strategy's collectives."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from mpistrat.errors import UsageError

__all__ = ["CommunicationImplementation", "CommunicationOptions"]


class CommunicationImplementation(enum.Enum):
    """TensorFlow's choices; accepted, without effect: the backend decides."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


@dataclass(frozen=True)
class CommunicationOptions:
    """Options of a strategy or of one call.

    Attributes
    ----------
    bytes_per_pack
        Size of the buckets that lists of arrays are packed into; 0 for MPISTRAT_FUSION_BYTES.
    timeout_seconds
        Deadline of each collective; None for MPISTRAT_TIMEOUT.
    implementation
        TensorFlow's choice of a carrier; accepted, without effect.

    References
    ----------
    tf.distribute.experimental.CommunicationOptions.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        size, timeout = self.bytes_per_pack, self.timeout_seconds
        if not isinstance(size, Integral) or size < 0:
            raise UsageError(f"bytes_per_pack={size!r}; expected an int of at least 0")
        if timeout is not None and not (isinstance(timeout, Real) and timeout > 0):
            raise UsageError(f"timeout_seconds={timeout!r}; expected more than 0, or None")
        object.__setattr__(self, "implementation", _implementation(self.implementation))


def _implementation(value: Any) -> CommunicationImplementation:
    """Return the member; TensorFlow takes its name in any case too."""
    try:
        return CommunicationImplementation(value.upper() if isinstance(value, str) else value)
    except ValueError as error:
        raise UsageError(f"implementation={value!r}; expected AUTO, RING or NCCL") from error
