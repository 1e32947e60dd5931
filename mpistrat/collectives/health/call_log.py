"""Number, record and describe the calls of one communicator."""

from __future__ import annotations

import sys

from mpistrat.collectives.backends.fast_path import FastCalls
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.headers import Headers
from mpistrat.collectives.checking.mismatch_message import describe
from mpistrat.collectives.health.call_record import Kind
from mpistrat.collectives.health.peers import cut
from mpistrat.collectives.health.recorder import Recorder

__all__ = ["CallLog"]


class CallLog:
    """The calls that this rank has come to, and the one under way. All methods are **Local.**

    Attributes
    ----------
    recorder
        The records of the last calls.
    label
        What the call under way was made for; must agree on all ranks.
    is_crossing
        Whether the headers of the call under way are still exchanged.
    remark
        What this rank's calls are part of: shown in errors, not compared; None if nothing.
    """

    def __init__(
        self, headers: Headers, recorder: Recorder, size: int, fast: FastCalls | None
    ) -> None:
        self._headers, self._size, self._fast = headers, size, fast
        self.recorder = recorder
        self.label: str | None = None
        self.remark: str | None = None
        self._what: Signature | str = "its creation"
        self.is_crossing = False
        self._turn = self._resumed = 0
        # The error, and in which call all ranks heard of it: programs may raise it again later.
        self._known: tuple[Exception | None, int] = (None, 0)

    # ----------------------------------------------------------------------------- numbers

    @property
    def sequence(self) -> int:
        """Number of calls started; kept in the header, where fast calls count, too."""
        return self._headers.sequence

    @property
    def completed(self) -> int:
        """Number of calls whose headers were exchanged."""
        fast = self._fast
        is_under_way = self.is_crossing or (fast is not None and fast.is_under_way)
        return self.sequence - is_under_way

    def arrive(self, what: Signature | str) -> None:
        """Come to the next call, which is under way from now on."""
        self._what = what
        self._known = (None, 0)
        self._turn += 1
        self.is_crossing = True

    def begin(
        self, what: Signature | str, kind: Kind, failures: int, extra: int, nbytes: int
    ) -> None:
        """Come to the next call, count it, fill in its header and record it."""
        self.arrive(what)
        sequence = self._headers.count(kind.digest, failures, extra)
        self.recorder.begin(sequence, kind, nbytes)

    def note_carrier(self, name: str) -> None:
        """Record what carries the arrays on GPUs of the call under way."""
        self.recorder.note_carrier(self.sequence, name)

    def resume(self, what: Signature | str) -> None:
        """Come to a call that the backend has counted and recorded."""
        self.note_resumed()
        self.arrive(what)

    def note_resumed(self) -> None:
        """Know that the last call, which the backend has begun, is looked after."""
        self._resumed = self.sequence

    def has_resumed(self, sequence: int) -> bool:
        """Tell whether :meth:`resume` has come to call `sequence`."""
        return self._resumed >= sequence

    # ------------------------------------------------------------------------------- errors

    def mark_known(self, error: Exception) -> Exception:
        """Return `error`, of which all ranks hear together in this call: it needs no notice."""
        self._known = (error, self._turns)
        return error

    def is_known(self, error: BaseException) -> bool:
        """Tell whether all ranks heard of `error` together, in the last call."""
        return error is self._known[0] and self._turns == self._known[1]

    @property
    def _turns(self) -> int:
        """Number of calls that the program has come to; the backend may have begun later ones."""
        return self._turn + (0 if self._fast is None else self._fast.fast_calls)

    # ------------------------------------------------------------------------------ in words

    def describe(self, most: int = 0) -> str:
        """Return the call under way as a user would write it; `most` as of `describe`."""
        what = self._what
        call = cut(what, 900) if isinstance(what, str) else describe(what, self.label, most)
        return call if self.remark is None else f"{call}, which {self.remark},"

    def in_words(self) -> str:
        """Do the same, with its number."""
        return f"call {self.sequence}, {self.describe()}"

    def show_last_calls(self) -> None:
        """Show the last calls on standard error, once."""
        self.recorder.drain(is_end=True)
        if self._size > 1:
            # Not by the log, which may be silent here.
            sys.stderr.write(self.recorder.dump())
