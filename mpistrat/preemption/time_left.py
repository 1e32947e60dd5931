"""Derive from a signal when the batch system will end this process."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat import config
from mpistrat.errors import UsageError

__all__ = ["Leads", "leads_of"]

_KILL_WAIT_S = 30.0  # Slurm's default between SIGTERM and SIGKILL
_RESERVE, _LEAST_RESERVE_S, _MOST_RESERVE_S = 0.1, 1.0, 15.0


@dataclass(frozen=True)
class Leads:
    """How many seconds before the end each signal comes.

    Attributes
    ----------
    by_signal
        Of the signals that have a lead of their own.
    default_s
        Of all others.
    """

    by_signal: Mapping[int, float]
    default_s: float

    def deadline(self, number: int, came: float) -> float:
        """Return when this process should have ended by itself, in seconds since 1970.

        A tenth of the lead, 15 s at most, is left to the job's script and the batch system.

        Parameters
        ----------
        number
            The signal; 0 for a stop that no signal has asked for.
        came
            When it came, in seconds since 1970.
        """
        lead_s = self.by_signal.get(number, self.default_s)
        end = came + lead_s
        # Slurm may send a signal a minute early, never late: the nearer end is the safe one.
        limit = _slurm_end()
        if came < limit:
            end = min(end, limit)
        reserve_s = min(_MOST_RESERVE_S, max(_LEAST_RESERVE_S, _RESERVE * lead_s))
        return max(came, end - reserve_s)


def _slurm_end() -> float:
    """Return when the job's time limit ends, as Slurm 23.02 and newer say; 0 if unknown."""
    text = os.environ.get("SLURM_JOB_END_TIME", "")
    return float(text) if text.isdecimal() else 0.0


def leads_of(given: float | Mapping[int, float] | None) -> Leads:
    """Return the leads that a program has given, and the defaults for the other signals.

    Raises
    ------
    UsageError
        One is no number of seconds above 0.
    """
    default_s = config.signal_lead_s()
    by_signal: dict[int, float] = {signal.SIGTERM: min(_KILL_WAIT_S, default_s)}
    if isinstance(given, Mapping):
        by_signal |= {int(number): _checked(lead_s) for number, lead_s in given.items()}
    elif given is not None:
        default_s = _checked(given)
        by_signal = {}
    return Leads(by_signal, default_s)


def _checked(lead_s: float) -> float:
    is_number = isinstance(lead_s, int | float) and not isinstance(lead_s, bool)
    if not is_number or not 0 < lead_s < math.inf:
        raise UsageError(
            f"lead_s={lead_s!r}: expected seconds above 0 between a signal and the end of the job,"
            " or a dict of them by signal, such as {signal.SIGTERM: 60}"
        )
    return float(lead_s)
