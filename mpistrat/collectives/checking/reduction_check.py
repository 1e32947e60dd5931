"""Check that a backend can do a reduction, and tell how it is to carry it out."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from mpistrat.collectives.backends.base import Capabilities
from mpistrat.errors import BackendError
from mpistrat.tables.reduction_ops import Carried, carried, check_op

__all__ = ["ReductionCheck"]


class Reducer(Protocol):
    """What is asked of a backend here."""

    name: str
    rank: int
    size: int

    def capabilities(self) -> Capabilities:
        """See `Backend.capabilities`."""
        ...


class ReductionCheck:
    """The reductions of one communicator's backend. All methods are **Local.**"""

    def __init__(self, backend: Reducer) -> None:
        self._backend = backend
        self._can = backend.capabilities()
        self._is_exact = self._can.exact and backend.size > 1
        self._possible: set[tuple[str, np.dtype[Any]]] = set()  # found so before

    def require(self, op: str, dtype: np.dtype[Any]) -> None:
        """Raise unless `op` has a meaning for `dtype`, and the backend can do it."""
        if isinstance(op, str) and (op, dtype) in self._possible:
            return
        check_op(op, dtype)
        can, how, one = self._can, self.carried(op, dtype), self._backend
        if how.op not in can.ops or how.dtype.name not in can.dtypes:
            raise BackendError(
                f"reduction {op!r} of {dtype} on rank {one.rank}/{one.size}: backend"
                f" {one.name!r} has ops {sorted(can.ops)} and dtypes"
                f" {sorted(can.dtypes)}; try backend='mpi'"
            )
        self._possible.add((op, dtype))

    def carried(self, op: str, dtype: np.dtype[Any]) -> Carried:
        """Return how this backend carries a reduction out."""
        return carried(op, dtype, self._is_exact)
