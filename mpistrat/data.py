"""``tf.data`` for arrays: the `Dataset` that the strategies distribute."""

from __future__ import annotations

from mpistrat.strategy.input.array_spec import ArraySpec
from mpistrat.strategy.input.datasets import Dataset
from mpistrat.strategy.input.input_context import AutoShardPolicy
from mpistrat.strategy.input.prefetch import AUTOTUNE

__all__ = ["AUTOTUNE", "ArraySpec", "AutoShardPolicy", "Dataset"]
