"""Measure how long saves take, and predict the next one, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path

from mpistrat.system import log
from mpistrat.system.files import atomic_files

__all__ = ["SaveTime"]

_LOG = log.get_logger(__name__)
_NAME = "save_time.json"
_GAIN, _DEVIATIONS = 0.25, 2.0  # of the newest save; and how many of these are added
_FIRST_DEVIATION = 0.25  # of a save's time, where it is the only one that is known


class SaveTime:
    """The mean time of a save and its deviation, both as moving averages.

    Parameters
    ----------
    folder
        Where they are kept over restarts, beside the checkpoints; None to keep them here only.

    Notes
    -----
    **Local**, and for rank 0, which decides for all.

    References
    ----------
    RFC 6298 predicts the time of a network's answer in this way.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / _NAME
        self._mean_s, self._deviation_s = self._read()

    @property
    def expected_s(self) -> float | None:
        """What the next save may take, in seconds; None if none has been measured."""
        return None if self._mean_s is None else self._mean_s + _DEVIATIONS * self._deviation_s

    def add(self, duration_s: float) -> None:
        """Take in how long a save has taken."""
        if self._mean_s is None:
            self._mean_s, self._deviation_s = duration_s, _FIRST_DEVIATION * duration_s
        else:
            error = duration_s - self._mean_s
            self._mean_s += _GAIN * error
            self._deviation_s += _GAIN * (abs(error) - self._deviation_s)
        self._write()

    def _read(self) -> tuple[float | None, float]:
        try:
            found = {} if self._file is None else json.loads(self._file.read_bytes())
            mean_s, deviation_s = float(found["mean_s"]), float(found["deviation_s"])
        except (OSError, ValueError, TypeError, KeyError):  # none yet, or not ours
            return None, 0.0
        return mean_s, deviation_s

    def _write(self) -> None:
        found = {"mean_s": self._mean_s, "deviation_s": self._deviation_s}
        try:
            if self._file is not None:
                atomic_files.replace_whole(self._file, json.dumps(found).encode() + b"\n")
        except OSError as error:  # the checkpoint is there, which is what counts
            _LOG.info("the time of a save is not kept: %s", error)
