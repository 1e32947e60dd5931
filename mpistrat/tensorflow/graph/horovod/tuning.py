"""`Tuning`: how Horovod is to be initialised."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Tuning", "environment"]


@dataclass(frozen=True)
class Tuning:
    """How Horovod is to be initialised.

    Attributes
    ----------
    fusion_bytes
        Size of its fusion buffer; None for its default or HOROVOD_FUSION_THRESHOLD.
    cycle_time_ms
        Pause between its rounds; None for its default or HOROVOD_CYCLE_TIME.
    """

    fusion_bytes: int | None = None
    cycle_time_ms: float | None = None

    def variables(self) -> dict[str, str]:
        """Return the environment variables that Horovod reads when it is initialised."""
        given = {
            "HOROVOD_FUSION_THRESHOLD": self.fusion_bytes,
            "HOROVOD_CYCLE_TIME": self.cycle_time_ms,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in a block. **Local.**"""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
