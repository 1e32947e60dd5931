"""The signature of a call: what ranks must agree on, and the text when they do not.

A call's *signature* is a tuple ``(op, reduction, dtype, shape, root, axis)`` with None where
ranks may differ. Its digest (64 bits of BLAKE2b) travels in every gate line.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["INVALID", "Signature", "caller", "describe", "digest", "mismatch_text"]

INVALID = 1
"""Digest of a call that its rank refused; all ranks refusing alike is no mismatch."""

_STDLIB = str(Path(os.__file__).resolve().parent) + os.sep
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_LIBRARY = re.compile(r".*[\\/](?:site|dist)-packages[\\/](\w+)")
_FRAMEWORKS = ("tensorflow", "keras")
# What `describe` writes before the shape, and the shape, which ends before the next argument.
_SHAPE = re.compile(
    r"(.*?)shape=(.*?)(?:, (?:root|axis|bucket_bytes)=|\) (?:\(|at )|$)", re.DOTALL
)


class Signature(NamedTuple):
    """What must agree on all ranks in one call."""

    op: str
    reduction: str | None = None
    dtype: Any = None
    shape: Any = None
    root: int | None = None
    axis: int | None = None
    bucket_bytes: int | None = None


@lru_cache(maxsize=4096)
def digest(signature: Signature, label: str | None = None) -> int:
    """Return 63 bits that differ when signatures or labels do; equal on every machine."""
    text = "\x1f".join(map(str, (*signature, label))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1 | 2


def describe(signature: Signature, label: str | None = None) -> str:
    """Return the call as a user would write it; `label` says what it was made for."""
    names = ("op", "dtype", "shape", "root", "axis", "bucket_bytes")
    values = (*signature[1:],)
    shown = (f"{n}={v}" for n, v in zip(names, values, strict=True) if v is not None)
    call = f"{signature.op}({', '.join(shown)})"
    return f"{call} ({label})" if label else call


def caller() -> str:
    """Return the innermost line of code outside this package as ``file:line (function)``."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (_is_between(name) or "_op_def_library" in frame.f_globals):
            return f"{name}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back  # type: ignore[assignment]
    return "unknown line"


@lru_cache(maxsize=1024)
def _is_between(file: str) -> bool:
    """Whether code of a file stands between the user's and a collective.

    That is this package, wherever it is installed, the standard library, and TensorFlow with
    Keras; what TensorFlow generates for an operation is known by a name in it instead.
    """
    if file.startswith((_PACKAGE, "<frozen")):
        return True
    library = _LIBRARY.search(file)
    return library[1] in _FRAMEWORKS if library else file.startswith(_STDLIB)


def mismatch_text(calls: dict[int, str], rank: int) -> str:
    """Return the message of a mismatch: rank by rank, equal calls together.

    It begins with TensorFlow's words for it if the calls are the same but for their shapes.
    """
    groups: dict[str, list[int]] = {}
    for r, call in calls.items():
        groups.setdefault(call, []).append(r)
    rows = [f"  rank {', '.join(map(str, ranks))}: {call}" for call, ranks in groups.items()]
    title = "the ranks called different collectives"
    if _differ_in_shape(groups):
        title = f"Shape mismatch: {title}"
    return "\n".join(
        [
            f"{title} (seen on rank {rank}/{len(calls)}):",
            *rows,
            "all ranks must make the same calls in the same order with matching arguments",
        ]
    )


def _differ_in_shape(calls: Iterable[str]) -> bool:
    """Tell whether all calls are one operation of one dtype, on arrays of several shapes."""
    found = [_SHAPE.match(call) for call in calls]
    operations = {match[1] if match else None for match in found}
    return None not in operations and len(operations) == 1 < len({m[2] for m in found if m})
