"""The gradients of a step, in buckets and in the order of the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mpistrat.bench.models.gradient_set import GradientSet
from mpistrat.bench.training_step.dense_bucket import DTYPE, DenseBucket
from mpistrat.bench.training_step.pending import Pending
from mpistrat.bench.training_step.rows_bucket import RowsBucket
from mpistrat.collectives.operations.allreduce_many import buckets as buckets_of
from mpistrat.types import Array

if TYPE_CHECKING:
    from mpistrat.bench.training_step.carrier import Carrier

__all__ = ["Bucket", "gathered_bytes", "make_buckets"]


class Bucket(Protocol):
    """Gradients that are reduced together, as soon as the last of them is there."""

    @property
    def sizes(self) -> list[int]:
        """Elements of each gradient, in the order in which they are computed, on all ranks."""
        ...

    def start(self, carrier: Carrier) -> Pending:
        """Start to reduce them. **Collective.**"""
        ...

    def is_right(self, answer: Sequence[Array]) -> bool:
        """Tell whether this is the expected answer, and spoil it for the next one. **Local.**"""
        ...


def make_buckets(
    gradients: GradientSet, bucket_bytes: int, rank: int, size: int
) -> list[DenseBucket | RowsBucket]:
    """Return a step's buckets, that of the last layer first. **Local.**

    A bucket is full when the next gradient would bring it above `bucket_bytes`; a larger gradient
    has one of its own. The rows of all tables are the last bucket.
    """
    arrays = [np.empty(shape, DTYPE) for shape in reversed(gradients.shapes)]
    plan = buckets_of(arrays, "sum", bucket_bytes)
    buckets: list[DenseBucket | RowsBucket] = [
        DenseBucket.filled(number, [arrays[index] for index in members], rank, size)
        for number, members in enumerate(plan)
    ]
    if gradients.tables:
        buckets.append(RowsBucket.drawn(gradients.tables, rank, size))
    return buckets


def gathered_bytes(buckets: Sequence[Bucket]) -> int:
    """Return the bytes of the rows of all ranks, with their indices."""
    of_rows = [one for one in buckets if isinstance(one, RowsBucket)]
    return sum(array.nbytes for one in of_rows for array in one.expected())
