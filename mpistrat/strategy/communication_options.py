"""How a strategy's collectives should be carried."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mpistrat.errors import UsageError

__all__ = ["CommunicationImplementation", "CommunicationOptions"]


class CommunicationImplementation(enum.Enum):
    """TensorFlow's choices; here AUTO and RING leave it to the backend, NCCL needs GPUs."""

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
        A preference among carriers.

    References
    ----------
    tf.distribute.experimental.CommunicationOptions.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation = CommunicationImplementation.AUTO

    def __post_init__(self) -> None:
        if self.bytes_per_pack < 0:
            raise UsageError(f"bytes_per_pack={self.bytes_per_pack}; expected at least 0")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise UsageError(f"timeout_seconds={self.timeout_seconds}; expected more than 0")
