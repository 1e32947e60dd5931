"""`Adagrad`: step sizes that shrink with the sum of squared gradients."""

from __future__ import annotations

from mpistrat.errors import UsageError
from mpistrat.optimizers.base import LearningRate, Optimizer
from mpistrat.tables.update_rules import AdagradRule

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """Steps that shrink where gradients have been large.

    Parameters
    ----------
    learning_rate
        A number, or a function of the number of steps done.
    initial_accumulator_value
        Where the sums of squares begin; not negative.
    epsilon
        Keeps from dividing by zero.

    References
    ----------
    tf.keras.optimizers.Adagrad; Duchi et al., 2011.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
    ) -> None:
        if initial_accumulator_value < 0:
            raise UsageError(
                f"Adagrad: initial_accumulator_value={initial_accumulator_value!r}; expected no"
                " less than 0"
            )
        super().__init__(AdagradRule(False, initial_accumulator_value, epsilon), learning_rate)
