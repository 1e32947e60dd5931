"""Ignore errors of MPI calls that only report a dead rank, where MPI survives one (ULFM)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["excused"]


@contextmanager
def excused(comm: Any, kind: type[Exception]) -> Iterator[None]:
    """Ignore MPI's errors in a block if a rank of `comm` has died. **Local.**

    Receives from any rank work again after such a block; before it they fail forever.

    Parameters
    ----------
    comm
        An mpi4py communicator.
    kind
        Its class of errors.
    """
    try:
        yield
    except kind:
        if not _acknowledge(comm):
            raise


def _acknowledge(comm: Any) -> bool:
    """Tell MPI that this rank knows of the dead ones; return whether there are any."""
    try:
        failed = comm.Get_failed()
        is_any = bool(failed.size > 0)
        failed.Free()
        if is_any:
            comm.Ack_failed()
    except Exception:  # noqa: BLE001 - not implemented, or broken altogether: no excuse
        return False
    return is_any
