"""Let rank 0 alone save for Keras's callbacks, and let files appear whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.collectives.checking.raise_on_all import first_or_none
from mpistrat.tensorflow.own_strategies import is_over_ranks
from mpistrat.tensorflow.shared_files import written_whole

__all__ = ["by_chief", "weights_written_whole"]


def by_chief(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let only rank 0 run a callback's method; the others wait for it, and fail if it fails."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.model.distribute_strategy
        if not is_over_ranks(strategy):
            return original(self, *args, **kwargs)
        results: list[Any] = []  # stays on rank 0

        def save() -> Any:
            results.append(original(self, *args, **kwargs))
            # By `best` a ModelCheckpoint decides whether it saves: the ranks must decide alike.
            return getattr(self, "best", None)

        best = first_or_none(strategy.communicator, save)
        if best is not None:
            self.best = best
        return results[0] if results else None

    return method


def weights_written_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Write weights whole, unless Keras splits them into files that name each other."""
    whole = written_whole(original)

    def save(model: Any, path: Any, max_shard_size: Any = None, **kwargs: Any) -> Any:
        write = whole if max_shard_size is None else original
        return write(model, path, max_shard_size, **kwargs)

    return save
