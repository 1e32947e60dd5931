"""Word the error when ranks call different collectives, or one with arrays of other shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpistrat.collectives.checking.fingerprint import Signature

__all__ = ["describe", "mismatch_text"]

# What `describe` writes before the shape, and the shape, which ends before the next argument.
_SHAPE = re.compile(
    r"(.*?)shape=(.*?)(?:, (?:root|axis|bucket_bytes|memory)=|\) (?:\(|at )|$)", re.DOTALL
)


def describe(signature: Signature, label: str | None = None) -> str:
    """Return the call as a user would write it; `label` says what it was made for."""
    names = ("op", "dtype", "shape", "root", "axis", "bucket_bytes", "memory")
    values = signature[1:-1]
    shown = (f"{n}={v}" for n, v in zip(names, values, strict=True) if v is not None)
    call = f"{signature.op}({', '.join(shown)})"
    return f"{call} ({label})" if label else call


def mismatch_text(calls: dict[int, str], rank: int, failed: Sequence[int] = ()) -> str:
    """Return the message of a mismatch: rank by rank, equal calls together.

    It begins with TensorFlow's words for it if the calls are the same but for their shapes.

    Parameters
    ----------
    calls
        What each rank called.
    rank
        This one.
    failed
        Those that failed alone and went on, which no call is carried out with any more.
    """
    groups: dict[str, list[int]] = {}
    for r, call in calls.items():
        groups.setdefault(call, []).append(r)
    rows = [f"  rank {', '.join(map(str, ranks))}: {call}" for call, ranks in groups.items()]
    title = "the ranks called different collectives"
    advice = "all ranks must make the same calls in the same order with matching arguments"
    if failed:
        names = ", ".join(map(str, failed))
        title = "the ranks cannot go on together"
        advice = (
            f"rank {names} went on after an error that the others do not know, and may have left"
            " out calls that they have made; let such an error end the program"
        )
    elif _differ_in_shape(groups):
        title = f"Shape mismatch: {title}"
    return "\n".join([f"{title} (seen on rank {rank}/{len(calls)}):", *rows, advice])


def _differ_in_shape(calls: Iterable[str]) -> bool:
    """Tell whether all calls are one operation of one dtype, on arrays of several shapes."""
    found = [_SHAPE.match(call) for call in calls]
    operations = {match[1] if match else None for match in found}
    return None not in operations and len(operations) == 1 < len({m[2] for m in found if m})
