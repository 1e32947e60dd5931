"""Logging: each line carries its rank; by default only rank 0's are shown.

Lines look like ``[mpistrat 1/4 node3] WARNING mpistrat.collectives: text``. ``MPISTRAT_LOG`` and
``MPISTRAT_LOG_RANKS`` choose what is shown (see :mod:`mpistrat.config`). An application that
gives the logger "mpistrat" a handler of its own before the first strategy keeps it as it is.
"""

from __future__ import annotations

import logging
import threading

from mpistrat import config

__all__ = ["configure", "get_logger", "warn_alone", "warn_once"]

_ROOT = "mpistrat"
_OF_ONE_RANK = "mpistrat_of_one_rank"  # an attribute of records
_once: set[tuple[str, str]] = set()
_lock = threading.Lock()


class _RankHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Write the lines of the ranks that may speak to standard error."""

    def set_rank(self, rank: int, size: int, hostname: str) -> None:
        """Set this process's rank, and read from the settings whether it may log."""
        ranks = config.log_ranks()
        self.speaks = ranks is None or rank in ranks
        self.setFormatter(
            logging.Formatter(
                f"[{_ROOT} {rank}/{size} {hostname}] {{levelname}} {{name}}: {{message}}",
                style="{",
            )
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the records of ranks that are to be silent, unless only this rank has them."""
        speaks = self.speaks or getattr(record, _OF_ONE_RANK, False)
        return speaks and bool(super().filter(record))


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a part of mpistrat, given as ``__name__`` or as ``"collectives"``."""
    is_full = name == _ROOT or name.startswith(f"{_ROOT}.")
    return logging.getLogger(name if is_full else f"{_ROOT}.{name}")


def configure(rank: int, size: int, hostname: str) -> None:
    """Let the lines of this process carry its rank; called once, when MPI starts.

    Notes
    -----
    **Local**. Idempotent; a later call changes the rank that is shown. Does nothing if the
    application has put handlers on the logger "mpistrat". Else the lines go to standard error
    and nowhere else, since the handlers of the root logger would repeat them on every rank.

    Raises
    ------
    UsageError
        ``MPISTRAT_LOG`` or ``MPISTRAT_LOG_RANKS`` cannot be understood.
    """
    logger = logging.getLogger(_ROOT)
    others = [h for h in logger.handlers if not isinstance(h, (_RankHandler, logging.NullHandler))]
    if others:
        return
    handler = next((h for h in logger.handlers if isinstance(h, _RankHandler)), None)
    added = handler or _RankHandler()
    added.set_rank(rank, size, hostname)
    if handler is None:
        if logger.level == logging.NOTSET:
            logger.setLevel(config.log_level())
        logger.propagate = False
        logger.addHandler(added)


def warn_once(logger: logging.Logger, key: str, text: str, level: str = "WARNING") -> None:
    """Log `text`, but only the first time that this process logs `key` to `logger`."""
    mark = (logger.name, key)
    with _lock:
        if mark in _once:
            return
        _once.add(mark)
    logger.log(getattr(logging, level), text, stacklevel=2)


def warn_alone(logger: logging.Logger, text: str) -> None:
    """Log a warning of what one rank alone does or finds, on whichever that is. **Local.**"""
    logger.warning(text, extra={_OF_ONE_RANK: True}, stacklevel=2)
