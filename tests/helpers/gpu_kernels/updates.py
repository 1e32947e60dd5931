"""Check updates: the bits of mpistrat.tables.update_rules, over several steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import UPDATES
from helpers.gpu_kernels.library import Library, check, filled_on_host
from mpistrat.collectives.backends.gpu.kernels.source import instance_name, type_name
from mpistrat.collectives.backends.gpu.kernels.tables import NUM_INLINE
from mpistrat.collectives.backends.gpu.kernels.updates import UPDATE_PIECE, update_dtype
from mpistrat.tables.update_rules import AdagradRule, AdamRule, Rule, SGDRule
from mpistrat.types import Array

__all__ = ["check_updates"]

_RULES: dict[str, Rule] = {
    "Descent": SGDRule(),
    "Momentum": SGDRule(momentum=0.9),
    "Nesterov": SGDRule(momentum=0.9, nesterov=True),
    "Adagrad": AdagradRule(),
    "Adam": AdamRule(),
    "AmsGrad": AdamRule(amsgrad=True),
}
_RATE = 0.01


def check_updates(library: Library, *, are_all: bool) -> None:
    """Update a few variables, and more than the launch's arguments can hold."""
    generator = np.random.default_rng(6)
    for name, variable, gradient in UPDATES:
        for count in (5, NUM_INLINE + 7) if are_all or name == "Adam" else (5,):
            types = dtype_of(variable), dtype_of(gradient)
            _check_one(library, generator, name, types, count)


def _check_one(
    library: Library,
    generator: np.random.Generator,
    name: str,
    types: tuple[np.dtype[Any], np.dtype[Any]],
    count: int,
) -> None:
    rule = _RULES[name]
    variable_type, gradient_type = types
    slot_type = rule.slot_dtype(variable_type)
    sizes = [int(one) for one in generator.integers(1, 700, count)]
    sizes[0] = 0
    initial = rule.initial_slots()
    wants = [random_values(generator, variable_type, size) for size in sizes]
    want_slots = [{s: np.full(n, v, slot_type) for s, v in initial.items()} for n in sizes]
    offsets = [int(one) * variable_type.itemsize % 16 for one in generator.integers(0, 8, count)]
    variables = [at_offset(one, at) for one, at in zip(wants, offsets, strict=True)]
    slots = [
        {
            s: at_offset(one, at * slot_type.itemsize // variable_type.itemsize % 16)
            for s, one in kept.items()
        }
        for kept, at in zip(want_slots, offsets, strict=True)
    ]
    for step in (1, 2, 3):
        gradients = [
            at_offset(
                random_values(generator, gradient_type, size), i * gradient_type.itemsize % 16
            )
            for i, size in enumerate(sizes)
        ]
        found = rule.native_rule(step, _RATE)
        assert found is not None
        check(found.name == name, f"{rule} is {found.name}; expected {name}")
        pieces = np.zeros(count, UPDATE_PIECE)
        pieces["variable"] = [one.ctypes.data for one in variables]
        pieces["gradient"] = [one.ctypes.data for one in gradients]
        for piece, kept in zip(pieces, slots, strict=True):
            piece["slots"][: len(kept)] = [kept[s].ctypes.data for s in found.slots]
        pieces["count"] = sizes
        _run(library, found, (name, *types), pieces)
        with np.errstate(all="ignore"):
            for want, kept, gradient in zip(wants, want_slots, gradients, strict=True):
                rule.apply_in_numpy(want, kept, gradient, step, _RATE)
        what = f"{name} of {variable_type} and {gradient_type}, step {step}"
        check(all(map(same_bits, variables, wants)), what)
        for s in initial:
            same = [same_bits(a[s], b[s]) for a, b in zip(slots, want_slots, strict=True)]
            check(all(same), f"{what}: {s}")


def _run(library: Library, found: Any, names: tuple[Any, ...], pieces: Array) -> None:
    call = np.zeros((), update_dtype())
    call["numbers"][: len(found.numbers)] = found.numbers
    rule, *types = names
    kernel = instance_name("update", f"mpistrat::{rule}", *map(type_name, types))
    with filled_on_host(call["table"], pieces, pieces["count"], 256):
        library.run(kernel, 3, 64, call)
