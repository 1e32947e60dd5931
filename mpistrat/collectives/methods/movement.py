"""The collectives that move arrays as methods: signatures and documentation."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.collectives import operations
from mpistrat.collectives.fast_path.decorator import with_fast_path
from mpistrat.collectives.methods.base import CallStarter
from mpistrat.collectives.progress.work import Work
from mpistrat.types import Array, ArrayLike

__all__ = ["MovementMethods"]


class MovementMethods(CallStarter):
    """The methods of a `Communicator` that move arrays; see there for what they share."""

    @with_fast_path
    def bcast(
        self,
        array: ArrayLike,
        root: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Copy the root's array to every rank.

        Parameters
        ----------
        array
            The array at `root`; on other ranks one of the same shape and dtype, whose content is
            ignored.
        root
            Rank that has the data.
        out
            Where to put the copy (may be `array`); default a new array.
        timeout
            Seconds to wait.
        """
        found: Array = self._call(timeout, operations.bcast, array, root, out)
        return found

    @with_fast_path
    def ibcast(self, array: ArrayLike, root: int = 0, *, out: Array | None = None) -> Work[Array]:
        """Start :meth:`bcast`."""
        return self._start_behind(operations.bcast, array, root, out)

    @with_fast_path
    def allgather(
        self,
        array: ArrayLike,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Concatenate all ranks' arrays in rank order along `axis`; every rank gets the result.

        Lengths along `axis` may differ between ranks; all else must agree. 0-d arrays
        are refused.

        Parameters
        ----------
        array
            What this rank brings.
        axis
            Dimension along which the arrays are put together.
        out
            Where to put the result, apart from `array`; default a new array.
        timeout
            Seconds to wait.

        Raises
        ------
        UsageError
            `out` has not as many rows as all ranks bring together, which is found out when they
            have come: the others have their results then, and this communicator is broken.
        """
        found: Array = self._call(timeout, operations.allgather, array, axis, out)
        return found

    @with_fast_path
    def iallgather(
        self, array: ArrayLike, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`allgather`."""
        return self._start_behind(operations.allgather, array, axis, out)

    @with_fast_path
    def gather(
        self,
        array: ArrayLike,
        root: int = 0,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Concatenate as :meth:`allgather` does; `root` gets the result, the others None.

        `out` counts at the root only.
        """
        found: Array | None = self._call(timeout, operations.gather, array, root, axis, out)
        return found

    @with_fast_path
    def igather(
        self, array: ArrayLike, root: int = 0, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array | None]:
        """Start :meth:`gather`."""
        return self._start_behind(operations.gather, array, root, axis, out)

    @with_fast_path
    def scatter(
        self,
        array: ArrayLike | None,
        root: int = 0,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Cut the root's array along `axis` and give every rank its piece.

        Ranks other than `root` pass None. Pieces are as in :meth:`reduce_scatter`; `out` has the
        shape and dtype of this rank's.
        """
        found: Array = self._call(timeout, operations.scatter, array, root, axis, out)
        return found

    @with_fast_path
    def iscatter(
        self, array: ArrayLike | None, root: int = 0, axis: int = 0, *, out: Array | None = None
    ) -> Work[Array]:
        """Start :meth:`scatter`."""
        return self._start_behind(operations.scatter, array, root, axis, out)

    @with_fast_path
    def alltoall(
        self,
        array: ArrayLike,
        splits: Sequence[int] | None = None,
        axis: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array:
        """Send block i of the rows along `axis` to rank i; return the blocks received, in order.

        Parameters
        ----------
        array
            Equal in dtype and in all lengths but that of `axis`.
        splits
            Rows for each rank, which may differ between ranks; default equal blocks.
        axis
            Dimension that is cut.
        out
            As of :meth:`allgather`.
        timeout
            Seconds to wait.
        """
        found: Array = self._call(timeout, operations.alltoall, array, splits, axis, out)
        return found

    @with_fast_path
    def ialltoall(
        self,
        array: ArrayLike,
        splits: Sequence[int] | None = None,
        axis: int = 0,
        *,
        out: Array | None = None,
    ) -> Work[Array]:
        """Start :meth:`alltoall`."""
        return self._start_behind(operations.alltoall, array, splits, axis, out)
