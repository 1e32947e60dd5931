"""Compare some rows of the data that ranks divide among themselves, when they begin to.

Each rank takes its share of one order of the rows. Where ranks have other data, or another order
of them, rows are lost and others come twice, and nothing else would tell: a permutation without a
seed, a list of files as the file system gives it. So ranks compare a few rows of arrays and lists,
and the order of the first ones, once. Data sets of generators are not looked at, which could have
effects.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy.input.dataset_rows import Rows
from mpistrat.strategy.input.datasets import Dataset
from mpistrat.strategy.input.source import as_element
from mpistrat.strategy.nest import flatten, text_of
from mpistrat.types import Array, Nest

__all__ = ["compare_data"]

_LABEL = "experimental_distribute_dataset, which compares some rows"
_SPREAD, _FIRST = 32, 64  # rows that are looked at: all over the data, and at its beginning
_LONGEST_ORDER = 1_000_000  # rows; to shuffle more of them takes too long
_MOST_BYTES = 1 << 20  # of each component that is read, though at least the beginning of two rows
_TOLERANCE = 1e-5  # of floats, whose last bits differ between processors

_ADVICE = (
    "Each rank takes its share of one order of the rows, so that some are lost and others come"
    " twice. Make them the same on all ranks: give what shuffles or splits a seed, sort lists of"
    " files, or let rank 0 make the data: strategy.communicator.bcast_object(data). If each rank"
    " is to have rows of its own, use strategy.distribute_datasets_from_function, or"
    " AutoShardPolicy.OFF. MPISTRAT_CHECKS=0 turns this check off"
)


class _Sample(NamedTuple):
    """What a rank tells of its data."""

    structure: str
    exact: tuple[int, ...]  # digests of components that are no floats
    sums: tuple[tuple[float, float], ...]  # of the others: weighted by place, and of magnitudes
    order: int


def compare_data(communicator: Communicator, dataset: Any) -> None:
    """Raise on all ranks if some rows of `dataset` are not the same on all. **Collective.**

    Raises
    ------
    UsageError
        They differ; it says in what, and on which rank.
    """
    if communicator.size == 1 or not config.checks():
        return
    with communicator.labelled(_LABEL):
        samples = communicator.allgather_object(_sample(dataset))
    for rank, other in enumerate(samples):
        what = _difference(samples[0], other)
        if what is not None:
            raise UsageError(f"rank {rank} has other data than rank 0: {what}. {_ADVICE}")


def _difference(first: _Sample | None, other: _Sample | None) -> str | None:
    if first is None or other is None:
        return None if first is other else "only one of them has arrays"
    if first.structure != other.structure:
        return f"they are {other.structure}, in place of {first.structure}"
    if first.order != other.order:
        return "the first rows come in another order"
    pairs = zip(first.sums, other.sums, strict=True)
    are_close = all(abs(a[0] - b[0]) <= _TOLERANCE * max(a[1], b[1]) for a, b in pairs)
    are_equal = are_close and first.exact == other.exact
    return None if are_equal else "some rows have other values"


def _sample(dataset: Any) -> _Sample | None:
    if isinstance(dataset, Dataset):
        if dataset.rows is None:
            return None
        found, order = dataset.rows, _first_rows(dataset)
        spread = np.linspace(0, max(found.length - 1, 0), _count(found)).astype(np.intp)
        nest = found(np.unique(spread)[: found.length])
        return _told(nest, f"{found.length} rows", 1, order)
    if isinstance(dataset, list) and dataset:
        nest = [as_element(dataset[i]) for i in sorted({0, len(dataset) // 2, len(dataset) - 1})]
        return _told(nest, f"{len(dataset)} elements", 0, [])
    return None


def _count(rows: Rows) -> int:
    """Return how many rows to look at."""
    leaves = flatten(rows.nest)[0]
    nbytes = int(sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves))
    return max(2, min(_SPREAD, _MOST_BYTES * rows.length // max(nbytes, 1)))


def _first_rows(dataset: Dataset) -> list[int]:
    """Return the numbers of the rows that come first, where that takes a moment only."""
    raw, load = dataset.raw(0)
    if load is not dataset.rows or dataset.rows.length > _LONGEST_ORDER:
        return []
    return list(itertools.islice(_numbers(raw), _FIRST))


def _numbers(raw: Iterator[Any]) -> Iterator[int]:
    for one in raw:
        yield from np.ravel(one).tolist()


def _told(nest: Nest, count: str, first_axis: int, order: list[int]) -> _Sample:
    leaves, structure = flatten(nest)
    arrays = [_host(leaf) for leaf in leaves if leaf is not None]
    kinds = ", ".join(f"{array.dtype} {array.shape[first_axis:]}" for array in arrays)
    arrays = [array.ravel()[: _MOST_BYTES // array.itemsize] for array in arrays]
    floats = [array for array in arrays if array.dtype.kind in "fc"]
    return _Sample(
        f"{count} of {text_of(structure)}: {kinds}",
        tuple(_digest(array.tobytes()) for array in arrays if array.dtype.kind not in "fc"),
        tuple(_sums(array) for array in floats),
        _digest(repr(order).encode()),
    )


def _host(leaf: Any) -> Array:
    found = on_device.to_host(leaf)
    return np.asarray(leaf if found is None else found)


def _sums(array: Array) -> tuple[float, float]:
    values = np.abs(array) if array.dtype.kind == "c" else array
    flat = np.nan_to_num(values.astype(np.float64).ravel(), posinf=1.0, neginf=-1.0)
    weights = np.arange(1, flat.size + 1)
    return float(flat @ weights), float(np.abs(flat) @ weights)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
