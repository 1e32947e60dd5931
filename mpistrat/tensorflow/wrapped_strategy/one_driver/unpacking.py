"""Count the targets of the caller's unpacking assignment, from its bytecode."""

from __future__ import annotations

import dis
import sys

__all__ = ["names_to_unpack_into"]


def names_to_unpack_into(depth: int) -> int | None:
    """Return 2 if a caller executes ``a, b = ...`` now; None if it is no such statement.

    Parameters
    ----------
    depth
        How far up the caller is; 0 is who calls this.
    """
    frame = sys._getframe(depth + 1)
    code, at = frame.f_code.co_code, frame.f_lasti
    is_unpacking = at >= 0 and dis.opname[code[at]] == "UNPACK_SEQUENCE"
    return code[at + 1] if is_unpacking else None
