"""Watch Horovod's transfers from beside: TensorFlow and Horovod wait without a deadline.

The thread that waits for a transfer is inside of TensorFlow, and cannot be called back. So another
one waits beside it, with a deadline, and hears of ranks that failed. Where the transfer does not
end after that, the job is aborted, once every rank could say what it saw.
"""

from __future__ import annotations

import sys
import threading
import time

from mpistrat import config
from mpistrat.collectives import Communicator, shutdown
from mpistrat.collectives.outside_call import OutsideCall
from mpistrat.errors import MpistratError

__all__ = ["TransferWatch"]

_LOOK_S = 0.05  # shorter transfers are not waited for beside
_IDLE_S = 5.0  # after this long without transfers the thread ends


class TransferWatch:
    """The watch over the transfers of one communicator.

    Parameters
    ----------
    communicator
        Whose ranks make the transfers.
    timeout
        Seconds that one may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(self, communicator: Communicator, timeout: float | None) -> None:
        self._communicator, self._timeout = communicator, timeout
        self._current: OutsideCall | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self, call: OutsideCall) -> None:
        """Watch the transfer of a call from now on. **Local.**"""
        with self._lock:
            self._current = call
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Watch it no more. **Local.**"""
        self._current = None

    def _run(self) -> None:
        seen: OutsideCall | None = None
        last_s = time.monotonic()
        while True:
            time.sleep(_LOOK_S)
            current = self._current
            if current is None and time.monotonic() - last_s > _IDLE_S:
                with self._lock:
                    if self._current is None:
                        self._thread = None
                        return
            if current is not None:
                last_s = time.monotonic()
                if current is seen and not self._is_well(current):
                    self._give_up(current)
                    return
            seen = current

    def _is_well(self, call: OutsideCall) -> bool:
        try:
            call.wait(self._timeout)
        except MpistratError as error:
            # Not by the log, which may be silent here, and the thread that waits may never return.
            gate = self._communicator
            sys.stderr.write(
                f"[mpistrat] rank {gate.rank}/{gate.size}, in Horovod's transfer: {error}\n"
            )
            return False
        return True

    def _give_up(self, call: OutsideCall) -> None:
        end = time.monotonic() + config.grace_s()
        while time.monotonic() < end and self._current is call:
            time.sleep(_LOOK_S)
        if self._current is call:
            shutdown.leave([self._communicator])
