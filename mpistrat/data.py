"""Data sets of arrays; the part of ``tf.data`` that the strategies need."""

from __future__ import annotations

from mpistrat.strategy.array_spec import ArraySpec
from mpistrat.strategy.datasets import Dataset
from mpistrat.strategy.input_context import AutoShardPolicy
from mpistrat.strategy.prefetch import AUTOTUNE

__all__ = ["AUTOTUNE", "ArraySpec", "AutoShardPolicy", "Dataset"]
