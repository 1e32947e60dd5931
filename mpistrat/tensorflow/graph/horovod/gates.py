"""`Gates`: the calls of one communicator that are in Horovod's hands."""

from __future__ import annotations

import functools
import itertools
import re
import threading
import weakref
from typing import Any

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.outside_call import OutsideCall
from mpistrat.errors import CommunicationError
from mpistrat.tensorflow.errors import of_both, translate_also
from mpistrat.tensorflow.graph.horovod.transfer_watch import TransferWatch
from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["Gates"]

_NODE = re.compile(r"mpistrat_(\d+)_")  # in the names of Horovod's operations (Gates.name)


class Gates:
    """The calls of one communicator, from the comparison of the ranks to the end of the transfer.

    Parameters
    ----------
    communicator
        Whose ranks make the calls.
    number
        Of the communicator's use of Horovod (`Member`).
    timeout
        Seconds that one may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(self, communicator: Communicator, number: int, timeout: float | None) -> None:
        self.communicator, self.number, self.timeout = communicator, number, timeout
        self._watch = TransferWatch(communicator, timeout)
        self._calls: dict[int, OutsideCall] = {}
        self._numbers = itertools.count(1)
        self.lock = threading.RLock()  # of eager calls: one transfer at a time
        _all_gates.add(self)

    def name(self, what: str) -> str:
        """Return the name by which Horovod matches a transfer: one on all ranks.

        No other communicator's transfers have it; of this one, one is under way at a time.
        """
        return f"mpistrat_{self.number}_{what}"

    def start(self, signature: Signature, label: str | None) -> tuple[int, OutsideCall]:
        """Start a call; return its number and itself."""
        with self.communicator.labelled(label):
            return next(self._numbers), self.communicator.start_outside(signature)

    def hand_over(self, number: int, call: OutsideCall, timeout: float | None) -> None:
        """Wait until all ranks are here, and watch the transfer from then on."""
        call.wait_for_all(timeout)
        self._calls[number] = call
        self._watch.begin(call)

    def end(self, number: int) -> None:
        """End a call whose data have come, unless it was abandoned."""
        self._watch.end()
        call = self._calls.pop(number, None)
        if call is not None:
            call.end()

    def abandon(self) -> None:
        """End the calls under way whose graph failed elsewhere, and never comes to their end."""
        for number in tuple(self._calls):
            self.end(number)

    def fail(self, error: BaseException) -> Any:
        """End the calls under way, whose transfer failed here; return the error to raise."""
        self._watch.end()
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        rank = f"rank {self.communicator.rank}/{self.communicator.size}"
        raised: Any = CommunicationError(f"Horovod's transfer failed on {rank}: {text}")
        while self._calls:
            raised = self._calls.popitem()[1].fail(raised)
        return raised


_all_gates: weakref.WeakSet[Gates] = weakref.WeakSet()


def _translated(error: Any, function: str) -> Any:
    """Return this package's error for one of a graph with transfers, or None.

    Where the graph failed elsewhere, its transfer ends unseen, and is abandoned.
    """
    numbers, failed = _transfers_in(function), set(map(int, _NODE.findall(error.message)))
    raised = None
    for gates in [one for one in _all_gates if one.number in numbers]:
        if gates.number in failed:
            raised = of_both(gates.fail(error))
        else:
            gates.abandon()
    return raised


@functools.cache
def _transfers_in(function: str) -> frozenset[int]:
    """Return the numbers of the uses of Horovod whose transfers are in a function."""
    nodes = private_graph.nodes_of(function)
    numbers = {int(found) for node in nodes for found in _NODE.findall(node.name)}
    inner = [name for node in nodes for name in private_graph.functions_of(node)]
    return frozenset(numbers).union(*map(_transfers_in, inner))


translate_also(_translated)
