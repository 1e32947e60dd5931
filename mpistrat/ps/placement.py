"""Choose which parameter server keeps a new variable, or each part of one."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.errors import UsageError

__all__ = ["Placement"]


class Placement:
    """Spreads variables over servers by their bytes.

    A variable goes to the server with the fewest bytes; of several such servers the next one after
    the last that was chosen takes it, so variables of one size go round.

    Parameters
    ----------
    num_servers
        At least 1.

    Attributes
    ----------
    nbytes
        What each server has been given so far.

    Examples
    --------
    >>> placement = Placement(3)
    >>> [placement.place(4) for _ in range(5)]
    [0, 1, 2, 0, 1]
    >>> placement.place_parts([8, 8])
    [2, 0]
    """

    def __init__(self, num_servers: int) -> None:
        if num_servers < 1:
            raise UsageError(f"Placement: num_servers={num_servers}; expected at least 1")
        self.nbytes = [0] * num_servers
        self._last = num_servers - 1

    def place(self, nbytes: int) -> int:
        """Return the server for a variable of so many bytes."""
        return self.place_parts([nbytes])[0]

    def place_parts(self, nbytes: Sequence[int]) -> list[int]:
        """Return the server for each part of one variable.

        No server gets a second part before all have one, so that the parts are read and changed
        side by side. Within that the rule is that for variables.

        Parameters
        ----------
        nbytes
            Of each part, in their order.
        """
        taken = [0] * len(self.nbytes)
        result = []
        for size in nbytes:
            server = self._next(taken)
            taken[server] += 1
            self.nbytes[server] += size
            self._last = server
            result.append(server)
        return result

    def _next(self, taken: Sequence[int]) -> int:
        count = len(self.nbytes)
        order = [(self._last + step) % count for step in range(1, count + 1)]
        return min(order, key=lambda server: (taken[server], self.nbytes[server]))
