"""The protocol of a probe: it tells which processes of a group, by rank, have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Probe"]


class Probe(Protocol):
    """A watch over the processes of other ranks, for any thread."""

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes are known to have ended. **Local**, never blocks.

        A process of which nothing is known counts as alive: deadlines are for those.

        Parameters
        ----------
        wait
            Another number for each wait, as a probe may look into those only that last.
        """
        ...
