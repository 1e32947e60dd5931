"""The layouts that conformance tests run on: ranks, and local devices on each rank."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAYOUTS", "Layout"]


@dataclass(frozen=True)
class Layout:
    """Ranks × local devices.

    A test with a parameter named ``layout`` runs in pytest's own process if ``ranks`` is 1, else
    in a job of that many ranks (see :mod:`mpistrat.testing.plugin`).

    Attributes
    ----------
    ranks
        Number of ranks.
    devices
        Number of local devices on each rank.
    """

    ranks: int
    devices: int

    @property
    def replicas(self) -> int:
        """Number of replicas: one for each device of each rank."""
        return self.ranks * self.devices

    @property
    def device_names(self) -> list[str]:
        """Names for the ``devices`` argument of a strategy, the same on every rank."""
        return [f"CPU:{i}" for i in range(self.devices)]

    def __str__(self) -> str:
        """Return the short name, such as ``2x1``; it is also the id of the test case."""
        return f"{self.ranks}x{self.devices}"


LAYOUTS: tuple[Layout, ...] = (
    Layout(1, 2),
    Layout(1, 4),
    Layout(2, 1),
    Layout(3, 1),
    Layout(2, 2),
)
"""One process with 2 and 4 local devices, 2 and 3 ranks, and 2 ranks with 2 devices each."""
