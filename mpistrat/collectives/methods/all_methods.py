"""All collectives as methods: those of the files beside this one, barriers, registered memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives import operations
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.fast_path.decorator import with_fast_path
from mpistrat.collectives.methods.movement import MovementMethods
from mpistrat.collectives.methods.objects import ObjectMethods
from mpistrat.collectives.methods.reductions import ReductionMethods
from mpistrat.collectives.outside_call import OutsideCall
from mpistrat.collectives.progress.work import Work
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine

__all__ = ["CollectiveMethods"]


class CollectiveMethods(ReductionMethods, MovementMethods, ObjectMethods):
    """The methods of a `Communicator` that are collectives; see there for what they share."""

    _engine: Engine

    def start_outside(self, signature: Signature) -> OutsideCall:
        """Start a call whose data another library carries, and which is checked here.

        Parameters
        ----------
        signature
            What must agree on all ranks.

        Notes
        -----
        **Collective**; see `OutsideCall` for what follows.
        """
        call = OutsideCall()
        return call.follow(self._engine, self._start(operations.outside, signature, call))

    @with_fast_path
    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until all ranks are here."""
        self._call(timeout, operations.barrier)

    @with_fast_path
    def ibarrier(self) -> Work[None]:
        """Start :meth:`barrier`."""
        return self._start_behind(operations.barrier)

    def empty(
        self,
        shape: int | Sequence[int],
        dtype: Any = float,
        *,
        shared: bool = False,
        device: str | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Return a new array that later calls read and write in place, without copies.

        Parameters
        ----------
        shape
            Equal on all ranks, as is `dtype`.
        dtype
            As for :func:`numpy.empty`.
        shared
            Whether the ranks of a node have one array together instead of one each: for results
            that all only read. An ``allreduce`` that is given it as ``out`` writes it once.
        device
            Where: ``"GPU:0"`` for this rank's first GPU, a full form as strategies have them, or
            the host (``"CPU:0"``, None). Ranks may name different GPUs, but not some a GPU and
            others the host.
        timeout
            Seconds to wait.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            Of zeros, or not initialised; on a GPU never initialised. Backends without registered
            memory give a plain array, as do GPUs whose carrier is ``nccl`` or ``staged``.

        Raises
        ------
        BackendUnavailableError
            On all ranks: some have not enough memory, no such GPU or no CuPy; or `shared` memory
            is wanted of a backend or a device that has none.

        Notes
        -----
        All-reduces of 16 KiB and more from and to such arrays take half the time or less. For a
        list, of gradients say, make one array and take its parts, one after the other:
        `allreduce_many` reads and writes them in place. The memory is given back when all ranks
        have dropped the array, and one more is made.

        On GPUs that the ranks map (``peer_memory``, docs/gpu.md) a call reads what all ranks, or
        its root, send from such arrays or parts of them where it is, and an ``allreduce`` whose
        results go to such memory on all ranks (``out=``) writes them there. Where only some ranks
        bring registered memory the call copies as it does with any other. What another rank reads
        is free again when the call returns. An array may outlive the communicator.
        """
        found: Array = self._call(timeout, operations.empty, shape, dtype, shared, device)
        return found
