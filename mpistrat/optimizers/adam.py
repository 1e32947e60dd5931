"""`Adam`: steps scaled by estimates of each gradient's mean and square."""

from __future__ import annotations

from mpistrat.errors import UsageError
from mpistrat.optimizers.base import LearningRate, Optimizer
from mpistrat.tables.update_rules import AdamRule

__all__ = ["Adam"]


class Adam(Optimizer):
    """Steps scaled by running estimates of each gradient's mean and square.

    Parameters
    ----------
    learning_rate
        A number, or a function of the number of steps done.
    beta_1, beta_2
        What share of the estimates is kept at each step, from 0 up to below 1.
    epsilon
        Keeps from dividing by zero.
    amsgrad
        Whether the largest estimate of the square so far counts.
    lazy
        Whether a gradient of some rows (`IndexedSlices`) leaves the others' estimates as they
        are, which is faster. By default it means zeros there, so that they decay.

    References
    ----------
    tf.keras.optimizers.Adam; Kingma and Ba, 2015.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        *,
        lazy: bool = False,
    ) -> None:
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= beta < 1:
                raise UsageError(f"Adam: {name}={beta!r}; expected a number from 0 to below 1")
        super().__init__(AdamRule(lazy, beta_1, beta_2, epsilon, amsgrad), learning_rate)
