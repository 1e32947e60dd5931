"""`Task`: the network of a training loop, its examples and its batches."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mpistrat.errors import UsageError

__all__ = ["INPUTS", "Task", "check_batch"]

INPUTS, CLASSES = 256, 10


@dataclass(frozen=True)
class Task:
    """What is trained, the same on all ranks.

    Attributes
    ----------
    case
        The subcommand.
    units, layers
        Size and number of the hidden layers.
    global_batch
        Examples in a step, over all ranks.
    steps
        Steps in a round, each of which begins with the same weights.
    """

    case: str
    units: int
    layers: int
    global_batch: int
    steps: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, of units in each hidden layer, and of classes."""
        return (INPUTS, *[self.units] * self.layers, CLASSES)

    @property
    def parameters(self) -> int:
        """Weights and biases; the gradient of each is sent in a step."""
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))

    @property
    def network(self) -> str:
        """The network's name."""
        return f"mlp-{self.layers}x{self.units}"

    def record(self, ranks: int) -> dict[str, Any]:
        """Return what is trained, for a JSON line."""
        return {
            "case": self.case,
            "family": "arrays",
            "network": self.network,
            "global_batch": self.global_batch,
            "rank_batch": self.global_batch / ranks,
            "steps": self.steps,
            "parameters": self.parameters,
            "bytes": 4 * self.parameters,  # float32
        }


def check_batch(batch: int, ranks: int) -> None:
    """Raise unless each rank gets an example of a global batch. **Local.**

    Raises
    ------
    UsageError
        There are fewer examples than ranks.
    """
    if batch < ranks:
        raise UsageError(
            f"--batch {batch}: a global batch for {ranks} ranks; expected an example a rank at"
            f" least; pass --batch {ranks} or more, or start fewer ranks"
        )
