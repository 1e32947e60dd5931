"""Apply the optimizers' update rules by native code, which reads and writes each value once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mpistrat.system.kernels import kernels, why_no_kernels

__all__ = ["NativeRule", "update_natively"]

_RULES = ("Descent", "Momentum", "Nesterov", "Adagrad", "Adam", "AmsGrad")
"""As ``MpistratRule`` of kernels/include/mpistrat/optimizer_updates.h."""


class NativeRule(NamedTuple):
    """A rule for native code: its name, the order of its slots, and its numbers.

    Those of kernels/cuda/update_rules.cuh, on the host and on GPUs.
    """

    name: str
    slots: tuple[str, ...]
    numbers: tuple[float, ...]


def update_natively(
    native: NativeRule,
    variables: Sequence[Any],
    gradients: Sequence[Any],
    slots: Sequence[Sequence[Any]],
    old: tuple[Sequence[Any], Sequence[Sequence[Any]]] | None = None,
) -> bool:
    """Update variables and their slots, if native code can. **Local.**

    Parameters
    ----------
    native
        The rule, with the numbers of this step.
    variables
        Arrays of a floating dtype.
    gradients
        One for each variable, of its shape and of any floating dtype.
    slots
        A sequence for each of the rule's slots, with one for each variable: of its shape, in
        the rule's `slot_dtype`.
    old
        Variables and slots as they are, if not in place: other arrays, which are only read, while
        `variables` and `slots` are only written.

    Returns
    -------
    bool
        Whether they were updated, with the bits of the rule in NumPy. If not, nothing was changed:
        an array is not one of NumPy, not in C order, of another dtype or shape, read-only, or
        overlaps another; or there are no kernels.
    """
    if why_no_kernels() is not None:
        return False
    rule = _RULES.index(native.name)
    written = list(variables), [list(some) for some in slots]
    read = written if old is None else (list(old[0]), [list(some) for some in old[1]])
    updated: bool = kernels().update(rule, native.numbers, list(gradients), *written, *read)
    return updated
