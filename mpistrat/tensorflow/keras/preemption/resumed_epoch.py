"""Hook Keras's epochs: let the first one of a resumed `fit` go on at the batch where it stopped.

What comes before is not trained on again, but the data have to be in the state that they had: a
data set that shuffles in another order each time it is iterated over counts these times. So the
passes before are begun, and nothing of them is read; the steps of the epoch up to the batch are
read and dropped. With ``steps_per_epoch`` one pass lasts for several epochs, of which all steps
are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Resumption", "metrics_of_resumed", "resume_at", "resumed"]

_MARK = "_mpistrat_resumed"


@dataclass(frozen=True)
class Resumption:
    """Where the next epoch of a `fit` begins.

    Attributes
    ----------
    epoch
        How many epochs were before it, since the `fit` began.
    batch
        Batches of it that are done.
    """

    epoch: int
    batch: int


_next: list[Resumption] = []


def resume_at(model: Any, resumption: Resumption) -> None:
    """Let the next epoch that begins, which is the model's, begin there. **Local.**"""
    _next[:] = [resumption]
    setattr(model, _MARK, True)


def resumed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the generator of an epoch's steps: leave out those that are done."""

    def enumerate_iterator(self: Any) -> Iterator[Any]:
        found = _next.pop() if _next else None
        if found is not None:
            for _ in range(found.epoch):
                _pass_over(self, original)
        steps = original(self)
        if found is not None:
            for _ in range(0, found.batch, self.steps_per_execution):
                _drop(self, next(steps))
        yield from steps

    return enumerate_iterator


def _pass_over(epochs: Any, original: Callable[..., Any]) -> None:
    """Do what an epoch does to the data, without its steps."""
    steps = original(epochs)
    if epochs.num_batches is None:
        # The data tell by their end how many there are, and Keras's generator does not end.
        next(steps)
        steps.close()
        epochs.data_adapter.on_epoch_end()
        return
    for step in steps:
        if epochs.steps_per_epoch:
            _drop(epochs, step)


def _drop(epochs: Any, step: Any) -> None:
    _, _, iterator = step
    for _ in range(epochs.steps_per_execution):
        next(iterator)


def metrics_of_resumed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the logs of an epoch: those of a resumed one that had no step left are its metrics."""

    def get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        is_resumed = vars(self).pop(_MARK, False)
        if is_resumed and logs == {}:
            return self.get_metrics_result()
        return original(self, logs)

    return get_metrics_result_or_logs
