"""The collectives of Python objects as methods: signatures and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpistrat.collectives.fast_path.decorator import with_fast_path
from mpistrat.collectives.methods.base import CallStarter
from mpistrat.collectives.operations import objects
from mpistrat.collectives.operations.root_check import check_root
from mpistrat.collectives.pickling import pack
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.collectives.checking.gate import Gate

__all__ = ["ObjectMethods"]


class ObjectMethods(CallStarter):
    """The methods of a `Communicator` that send objects; see there for what they share."""

    _gate: Gate

    def bcast_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Return the root's `value` on every rank; pickled, so for small Python objects.

        Fastest if the pickled object has at most 504 bytes. A rank that cannot unpickle it raises
        what pickle does, alone; the communicator stays usable.

        Parameters
        ----------
        value
            Of the root; that of other ranks is ignored.
        root
            Rank that has the object.
        timeout
            Seconds to wait.

        Raises
        ------
        ArgumentTypeError
            `value` cannot be pickled: on the root; the others get a `MismatchError` that says so.
        """
        try:
            check_root(root, self._gate.size, "bcast_object")
            data = pack(value) if self._gate.rank == root else b""
        except Exception as error:  # noqa: BLE001 - the peers must hear of it, whatever it is
            return self._call(timeout, objects.fail, error)
        frame = objects.frame_of(data, objects.FRAME_BYTES)
        return objects.unpack(self._bcast_packed(frame, root, timeout=timeout))

    def allgather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Return the list of all ranks' values, by rank; pickled, for small Python objects.

        Fastest if each pickled object has at most 504 bytes, on more than 32 ranks 56. For what
        cannot be pickled or unpickled see `bcast_object`.

        Parameters
        ----------
        value
            What this rank brings.
        timeout
            Seconds to wait.
        """
        nbytes = objects.gathered_frame_bytes(self._gate.size)
        try:
            frame = objects.frame_of(pack(value), nbytes)
        except Exception as error:  # noqa: BLE001 - as above
            refused: list[Any] = self._call(timeout, objects.fail, error)
            return refused
        found = self._allgather_packed(frame, timeout=timeout)
        if not isinstance(found, list):
            found = list(found.reshape(-1, nbytes))
        return [objects.unpack(packed) for packed in found]

    @with_fast_path
    def _bcast_packed(
        self, array: Array, root: int, *, out: Array | None = None, timeout: float | None = None
    ) -> Array:
        found: Array = self._call(timeout, objects.bcast_packed, array, root, out)
        return found

    @with_fast_path
    def _allgather_packed(
        self, array: Array, *, out: Array | None = None, timeout: float | None = None
    ) -> Array | list[Array]:
        found: Array | list[Array] = self._call(timeout, objects.allgather_packed, array, out)
        return found
