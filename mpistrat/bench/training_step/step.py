"""`Step`: compute gradients and reduce them, one after the other or at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from mpistrat.bench.training_step.backward import Backward
from mpistrat.bench.training_step.buckets import Bucket
from mpistrat.bench.training_step.carrier import Carrier
from mpistrat.bench.training_step.pending import Pending
from mpistrat.types import Array

__all__ = ["Answers", "Step"]

Answers: TypeAlias = list[Sequence[Array]]
"""The results of each bucket."""


@dataclass(frozen=True)
class Step:
    """One training step, from the start of the backward pass to the last sum.

    Attributes
    ----------
    buckets
        In the order in which their gradients are computed.
    backward
        What computes them.
    """

    buckets: Sequence[Bucket]
    backward: Backward

    def in_sequence(self, carrier: Carrier) -> Answers:
        """Compute all gradients, then reduce them. **Collective.**"""
        self.backward.compute_all()
        pending = [bucket.start(carrier) for bucket in self.buckets]
        return [one.wait() for one in pending]

    def overlapped(self, carrier: Carrier) -> Answers:
        """Reduce each bucket while the gradients of the next ones are computed. **Collective.**

        After each gradient what is under way is tested, as a training loop's hooks could do:
        much of MPI, and some calls of mpistrat, go on in no other moment.
        """
        index = count()
        pending: list[Pending] = []
        for bucket in self.buckets:
            for _ in bucket.sizes:
                self.backward.compute(next(index))
                for one in pending:
                    one.test()
            pending.append(bucket.start(carrier))
        return [one.wait() for one in pending]

    def is_right(self, call: Callable[[], Answers]) -> bool:
        """Make a call, and tell whether its answers are right on this rank. **Collective.**"""
        answers = zip(self.buckets, call(), strict=True)
        found = [bucket.is_right(answer) for bucket, answer in answers]  # of all: each is spoilt
        return all(found)
