"""Optimizers for mirrored variables and parameter servers; the arithmetic is Keras's."""

from mpistrat.optimizers.adagrad import Adagrad
from mpistrat.optimizers.adam import Adam
from mpistrat.optimizers.base import Optimizer
from mpistrat.optimizers.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer"]
