"""Choose the TPU of a rank when all ranks have the same arguments and environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mpistrat.errors import UsageError

__all__ = ["of_rank"]


def of_rank(given: Any, rank: int, size: int, driver: int | None = None) -> Any:
    """Return the name or the resolver of one rank. **Local.**

    Parameters
    ----------
    given
        A function, which is called with the rank; a list of what each rank has; a name that may
        have ``{rank}`` in it; None for TPU_NAME, if that has it; all else is returned as it is.
    rank, size
        Of this process, and how many there are.
    driver
        The only rank that has a TPU, so that only its function is called; None if all have.

    Raises
    ------
    UsageError
        A name has other braces in it, or a list is of another length or for one TPU.
    """
    if callable(given) and driver not in (None, rank):
        return None
    named = given(rank) if callable(given) else given
    if isinstance(named, (list, tuple)):
        named = _element(named, rank, size, driver)
    if named is None and "{" in os.environ.get("TPU_NAME", ""):
        named = os.environ["TPU_NAME"]
    if not isinstance(named, str):
        return named
    try:
        return named.format(rank=rank)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"the name {named!r} of a TPU; expected no braces but {{rank}}, such as slice-{{rank}}"
        ) from error


def _element(given: Sequence[Any], rank: int, size: int, driver: int | None) -> Any:
    if driver is not None or len(given) != size:
        raise UsageError(
            f"{len(given)} TPUs for {size} ranks with driver={driver}; expected one for each"
            " rank and no driver, or one TPU that is no list"
        )
    return given[rank]
