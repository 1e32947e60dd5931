"""Send a worker's gradients of a synchronous round to the ps, which keep them until its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.errors import ContextError, UsageError
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Apply, Stage

__all__ = ["RoundGradients"]


class RoundGradients:
    """Send a worker's gradients of synchronous rounds to the ps, which apply them at the end.

    Parameters
    ----------
    client
        The worker's connections to the ps.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._call, self._place = 0, -1
        self._counted: set[int] = set()

    def begin(self, call: int, place: int) -> None:
        """Begin a scheduled function: its number, and its index in the round or -1."""
        self._call, self._place = call, place
        self._counted.clear()

    def count_step(self, iterations: Any) -> int:
        """Let the round count one step of an optimizer; return how many there were before it."""
        spec = iterations.spec
        if self._place < 0:
            raise ContextError(
                "an optimizer's step in a function that is in no round, such as that of"
                " create_per_worker_dataset; expected it in a function that was scheduled"
            )
        if spec.key in self._counted:
            raise UsageError(
                f"a second step of the optimizer with {spec.name!r} in one function of a"
                " synchronous round; expected one, of all variables: add up their gradients, or"
                " schedule a function for each step"
            )
        self._counted.add(spec.key)
        # The ps counts at the end of the round, so that all functions of a round see one number.
        before = int(iterations.value())
        self._client.tell(spec.ps, Stage(self._call, spec.key, None))
        return before

    def give(self, updates: Sequence[tuple[int, Apply]]) -> None:
        """Send updates, each with its ps, to be applied at the end of the round."""
        self._client.tell_all(
            [(ps, Stage(self._call, one.key, one.update)) for ps, one in updates]
        )
