"""`SGD`: gradient descent, with or without momentum."""

from __future__ import annotations

from mpistrat.errors import UsageError
from mpistrat.optimizers.base import LearningRate, Optimizer
from mpistrat.tables.update_rules import SGDRule

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent, with momentum if that is not 0.

    Parameters
    ----------
    learning_rate
        A number, or a function of the number of steps done.
    momentum
        The share of the last update that is added again, from 0 to 1.
    nesterov
        Whether an update looks ahead by its momentum.
    lazy
        Whether a gradient of some rows (`IndexedSlices`) leaves the velocity of the others as it
        is, which is faster. By default it means zeros there, so that they coast on.

    References
    ----------
    tf.keras.optimizers.SGD.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        *,
        lazy: bool = False,
    ) -> None:
        if not 0 <= momentum <= 1:
            raise UsageError(f"SGD: momentum={momentum!r}; expected a number from 0 to 1")
        super().__init__(SGDRule(lazy, momentum, nesterov), learning_rate)
