"""Update all of ResNet-50's variables by one launch: SGD with momentum, Adam, Adagrad."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mpistrat.bench.gpu.comparison import OURS, Comparison, Planned, Plans, Side, pattern
from mpistrat.bench.gpu.families.lists import separate
from mpistrat.bench.gpu.families.torch_views import tensors, torch_sides
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.collectives.backends.gpu.kernels.updates import Update, apply_rule
from mpistrat.tables.update_rules import AdagradRule, AdamRule, Rule, SGDRule
from mpistrat.types import Array

__all__ = ["planned"]

_RATE = 0.01
_RULES: dict[str, Rule] = {
    "SGD, momentum": SGDRule(momentum=0.9),
    "Adam": AdamRule(),
    "Adagrad": AdagradRule(),
}
# Arrays as large as all variables that are there at once: variables, gradients, slots, initial
# values, those of torch, and a copy of 7 of these.
_SETS = 15
# torch and CuPy round in other places, and torch has Adam's epsilon elsewhere.
_TOLERANCE = 1e-4


def planned(variables: int) -> Plans:
    """Yield a row for each rule."""
    nbytes = 4 * sum(math.prod(shape) for shape in gradient_shapes()[:variables])
    for name in _RULES:
        yield Planned("update", name, nbytes, _SETS * nbytes, partial(_make, name, variables))


def _make(name: str, variables: int) -> Comparison:
    rule, shapes = _RULES[name], gradient_shapes()[:variables]
    count = sum(math.prod(shape) for shape in shapes)
    start, gradient = pattern(count), pattern(count, 3)
    initial, gradients = separate(start, shapes), separate(gradient, shapes)
    weights = [one.copy() for one in initial]
    updates = [
        Update(weight, {s: weight * 0 + v for s, v in rule.initial_slots().items()}, given)
        for weight, given in zip(weights, gradients, strict=True)
    ]
    want = _expected(rule, start, gradient)

    def is_right(_: Any) -> bool:
        got = np.concatenate([one.get().ravel() for one in weights])
        return np.allclose(got, want, rtol=_TOLERANCE, atol=0)

    def by_variable() -> None:
        for update in updates:
            _EXPRESSIONS[name](update)

    sides = [
        Side(OURS, "mpistrat", lambda: apply_rule(rule, updates, 1, _RATE)),
        Side("cupy loop", "cupy", by_variable, launches=8 * len(updates)),
    ]
    sides += torch_sides(
        lambda torch: _torch_step(torch.optim, name, weights, gradients), launches=16
    )
    passes = 3 + 2 * len(rule.initial_slots())  # of each element: reads and writes
    row = ("update", name, "float32", 4 * count, 4 * count * passes)
    return Comparison(*row, sides, partial(_reset, rule, updates, initial), is_right)


def _reset(rule: Rule, updates: list[Update], initial: list[Any]) -> None:
    """Give variables and slots the values from which each side's step begins."""
    for update, value in zip(updates, initial, strict=True):
        update.variable[...] = value
        for slot, first in rule.initial_slots().items():
            update.slots[slot].fill(first)


def _expected(rule: Rule, start: Array, gradient: Array) -> Array:
    want = start.copy()
    slots = {name: np.full_like(start, value) for name, value in rule.initial_slots().items()}
    rule.apply_in_numpy(want, slots, gradient, 1, _RATE)
    return want


def _momentum(update: Update) -> None:
    velocity, rule = update.slots["momentum"], _RULES["SGD, momentum"]
    velocity *= rule.momentum  # type: ignore[attr-defined]
    velocity -= _RATE * update.gradient
    _add(update.variable, velocity)


def _adam(update: Update) -> None:
    import cupy

    rule = AdamRule()
    first, second = update.slots["momentum"], update.slots["velocity"]
    first += (update.gradient - first) * (1 - rule.beta_1)
    second += (update.gradient * update.gradient - second) * (1 - rule.beta_2)
    scale = _RATE * (1 - rule.beta_2) ** 0.5 / (1 - rule.beta_1)
    _add(update.variable, first * -scale / (cupy.sqrt(second) + rule.epsilon))


def _adagrad(update: Update) -> None:
    import cupy

    total = update.slots["accumulator"]
    total += update.gradient * update.gradient
    _add(update.variable, update.gradient * -_RATE / cupy.sqrt(total + AdagradRule().epsilon))


def _add(variable: Any, change: Any) -> None:
    variable += change


_EXPRESSIONS: dict[str, Callable[[Update], None]] = {
    "SGD, momentum": _momentum,
    "Adam": _adam,
    "Adagrad": _adagrad,
}


def _torch_step(
    optim: Any, name: str, weights: list[Any], gradients: list[Any]
) -> Callable[[], object]:
    """Return the step of torch's optimizer, in its fastest form, from a state of its own."""
    parameters = [one.requires_grad_() for one in tensors(weights)]
    for one, given in zip(parameters, tensors(gradients), strict=True):
        one.grad = given
    makers: dict[str, Callable[..., Any]] = {
        "SGD, momentum": partial(optim.SGD, momentum=0.9, fused=True),
        "Adam": partial(optim.Adam, eps=AdamRule().epsilon, fused=True),
        "Adagrad": partial(optim.Adagrad, initial_accumulator_value=0.1, foreach=True),
    }
    step: Callable[[], object] = makers[name](parameters, lr=_RATE).step
    return step
