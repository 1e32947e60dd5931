"""The networks whose gradients can be measured, by name.

A new one is a function that returns its shapes, and an entry in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable

from mpistrat.bench.harness import resnet50_shapes
from mpistrat.bench.models import dlrm, vgg16
from mpistrat.bench.models.gradient_set import GradientSet
from mpistrat.bench.models.transformers import (
    BERT_LARGE,
    GPT2,
    GPT2_XL,
    bert_shapes,
    gpt2_shapes,
)
from mpistrat.errors import UsageError

__all__ = ["MODELS", "gradient_set"]

MODELS: dict[str, Callable[[], GradientSet]] = {
    "resnet50": lambda: GradientSet("resnet50", resnet50_shapes.gradient_shapes()),
    "vgg16": lambda: GradientSet("vgg16", vgg16.gradient_shapes()),
    "bert-large": lambda: GradientSet("bert-large", bert_shapes(BERT_LARGE)),
    "gpt2": lambda: GradientSet("gpt2", gpt2_shapes(GPT2)),
    "gpt2-xl": lambda: GradientSet("gpt2-xl", gpt2_shapes(GPT2_XL)),
    "dlrm": lambda: GradientSet("dlrm", dlrm.gradient_shapes(), dlrm.tables()),
}


def gradient_set(name: str, scale: float = 1.0) -> GradientSet:
    """Return the gradients of a network, each with the fraction `scale` of its size.

    Raises
    ------
    UsageError
        No network has that name; or `scale` is not above 0 and at most 1.
    """
    if name not in MODELS:
        raise UsageError(f"model {name!r} is not known; expected one of {', '.join(MODELS)}")
    if not 0 < scale <= 1:
        raise UsageError(f"scale {scale}; expected a fraction above 0 and at most 1")
    return MODELS[name]().scaled(scale)
