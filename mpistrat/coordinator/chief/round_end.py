"""Let the parameter servers apply what the functions of a synchronous round gave."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mpistrat.coordinator import failures
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import ApplyRound, SumRound

__all__ = ["apply_round"]

_PAUSES_S = (0.0, 0.1, 0.5, 2.0)  # before ps apply a round; memory may come back


def apply_round(client: Client, calls: Sequence[int]) -> None:
    """Let all ps sum what calls of a round gave, and apply it if that went well on all of them.

    Parameters
    ----------
    client
        The chief's.
    calls
        The numbers of the calls that count; none if the round is void.

    Raises
    ------
    Exception
        What is wrong with the round; nothing is applied.
    CoordinatorError
        Some ps lack memory for what others have applied.
    """
    client.ask_all_ps(SumRound([*calls]))
    if not calls:
        return
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        lacking = [one for one in client.ask_all_ps(ApplyRound()) if one]
        if not lacking:
            return
    raise failures.half_applied(lacking)
