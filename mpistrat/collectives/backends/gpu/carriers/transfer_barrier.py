"""Wait on the host until the GPUs of all ranks have done what was queued on them."""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.streams import TransferStream

__all__ = ["TransferBarrier"]


class TransferBarrier:
    """A barrier of the ranks of a node, behind their transfers.

    Parameters
    ----------
    host
        The backend by which ranks meet.
    stream
        The transfer stream of this rank's GPU.
    """

    def __init__(self, host: Backend, stream: TransferStream) -> None:
        self._host, self._stream = host, stream
        self._zero = np.zeros(1, np.int64)

    def wait(self) -> Steps:
        """Wait until all that the ranks have queued until here is done. **Collective.**"""
        yield self._stream.done()
        yield from self._host.allreduce(self._zero, self._zero, "max")
