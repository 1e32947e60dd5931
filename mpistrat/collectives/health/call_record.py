"""A call as its communicator records it: what users see, and the numbers that a ring keeps of it.

A ring holds numbers only; the texts that they stand for are kept here.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature

__all__ = ["SEPARATOR", "CallRecord", "Kind", "kind_of", "on_gpu", "text_number", "text_of"]

SEPARATOR = "\x1f"
"""Between the op, the device and the carrier: one text for the ring."""

_TEXTS = [""]
_NUMBERS = {"": 0}
_lock = threading.Lock()


@dataclass(frozen=True)
class CallRecord:
    """One call of a communicator, as its flight recorder kept it.

    Attributes
    ----------
    sequence
        Number of the call, from 1; the same on all ranks.
    op
        Name of the method, such as ``"allreduce"``.
    reduction
        What it reduces with, such as ``"sum"``; None if it does not reduce.
    dtype
        Name of the dtype; ``"mixed"`` for lists of several; None if there is none.
    nbytes
        Bytes that this rank brought; for broadcasts those of the result.
    label
        What the call was made for, such as the strategy's method; or None.
    start_ns, end_ns
        When this rank came to it and when it was over, on the clock of ``time.monotonic_ns()``;
        `end_ns` is None as long as it is under way.
    state
        ``"under way"``, ``"done"`` or ``"failed"``.
    device
        This rank's GPU for calls with arrays on GPUs, such as ``"GPU:0"``; else None.
    carrier
        What carried such arrays, as far as the call came so far; else None.
    """

    sequence: int
    op: str
    reduction: str | None
    dtype: str | None
    nbytes: int
    label: str | None
    start_ns: int
    end_ns: int | None
    state: str
    device: str | None = None
    carrier: str | None = None

    @property
    def memory(self) -> str:
        """Where the arrays are: ``"CPU"`` or ``"GPU"``."""
        return "CPU" if self.device is None else "GPU"

    def __str__(self) -> str:
        """Return the call in a line, as the list of last calls shows it."""
        place = f"{self.device} by {self.carrier}" if self.carrier else self.device
        what = ", ".join(text for text in (self.reduction, self.dtype, place) if text)
        label = f" ({self.label})" if self.label else ""
        if self.end_ns is None:
            state = f"under way for {_seconds(time.monotonic_ns() - self.start_ns)}"
        else:
            ago = _seconds(time.monotonic_ns() - self.end_ns)
            state = f"{self.state} in {_seconds(self.end_ns - self.start_ns)}, {ago} ago"
        nbytes = f" of {self.nbytes} bytes" if self.nbytes else ""
        return f"call {self.sequence}, {self.op}({what}){nbytes}{label}: {state}"


def _seconds(nanoseconds: int) -> str:
    for unit, nanos in (("s", 1e9), ("ms", 1e6)):
        if nanoseconds >= nanos:
            return f"{nanoseconds / nanos:.3g} {unit}"
    return f"{nanoseconds / 1e3:.3g} us"


class Kind(NamedTuple):
    """What is computed once for all calls of a kind: digest, numbers of texts, bytes."""

    digest: int
    op: int
    reduction: int
    dtype: int
    label: int
    nbytes: int


def on_gpu(signature: Signature, index: int, carrier: str = "") -> Signature:
    """Return the signature of a call whose arrays are on a GPU of this rank.

    Parameters
    ----------
    signature
        As for arrays of the host.
    index
        Of the GPU.
    carrier
        What carries the data, where that is known before the ranks meet.
    """
    return signature._replace(memory="GPU", where=f"GPU:{index}{SEPARATOR}{carrier}")


@lru_cache(maxsize=4096)
def kind_of(signature: Signature, label: str | None) -> Kind:
    """Return the digest of a call (see fingerprint.py), and how it is recorded."""
    names = _dtype_names(signature.dtype)
    return Kind(
        fingerprint.digest(signature, label),
        text_number(SEPARATOR.join(filter(None, (signature.op, signature.where)))),
        text_number(signature.reduction),
        text_number(names[0] if len(names) == 1 else "mixed" if names else None),
        text_number(label),
        _nbytes(signature),
    )


def text_number(text: str | None) -> int:
    """Return the number that stands for `text` in records."""
    # Without the lock at first: each change of a label comes here, and texts are only added.
    number = _NUMBERS.get(text or "")
    if number is None:
        with _lock:
            number = _NUMBERS.get(text or "")
            if number is None:
                number = len(_TEXTS)
                _TEXTS.append(text or "")
                _NUMBERS[text or ""] = number
    return number


def text_of(number: int) -> str | None:
    """Return the text of a number, or None for the empty one."""
    return _TEXTS[number] or None


def _dtype_names(dtype: Any) -> list[str]:
    if dtype is None:
        return []
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    return sorted({str(one) for one in dtypes})


def _nbytes(signature: Signature) -> int:
    """Return what the arrays of a signature hold, if it says so."""
    dtype, shape = signature.dtype, signature.shape
    if dtype is None or shape is None:
        return 0
    if isinstance(dtype, tuple):
        return sum(math.prod(s) * d.itemsize for d, s in zip(dtype, shape, strict=True))
    return int(math.prod(shape) * dtype.itemsize)
