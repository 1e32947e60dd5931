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
from typing import Any, NamedTuple

import numpy as np

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.collectives.arrays import on_device
from mpistrat.errors import UsageError
from mpistrat.strategy.input.datasets import Dataset
from mpistrat.strategy.input.source import as_element
from mpistrat.strategy.nest import flatten, text_of
from mpistrat.types import Array

__all__ = ["compare_data"]

_LABEL = "experimental_distribute_dataset, which compares some rows"
_SPREAD, _FIRST = 32, 16  # rows that are looked at, and elements whose rows' order is
_LONGEST_ORDER = 1_000_000  # rows; to shuffle more of them takes too long
_MOST_BYTES = 1 << 20  # of each component that is read, though always of two rows
_LARGE = 1e150  # so that sums are finite
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
    digests: tuple[int, ...]  # of each component's values
    sums: tuple[tuple[float, float], ...]  # weighted by place, and of magnitudes; zeros if exact
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
        with communicator.checking():
            mine = _sample(dataset)
        samples = communicator.allgather_object(mine)
    for rank, other in enumerate(samples):
        what = None if other == samples[0] else _difference(samples[0], other)
        if what is not None:
            raise UsageError(f"rank {rank} has other data than rank 0: {what}. {_ADVICE}")


def _difference(first: _Sample | None, other: _Sample | None) -> str | None:
    if first is None or other is None:
        return "only one of them has arrays"
    if first.structure != other.structure:
        return f"they are {other.structure}, in place of {first.structure}"
    if first.order != other.order:
        return "the first rows come in another order"
    columns = zip(first.digests, other.digests, first.sums, other.sums, strict=True)
    are_alike = all(a == b or _are_close(c, d) for a, b, c, d in columns)
    return None if are_alike else "some rows have other values"


def _are_close(first: tuple[float, float], other: tuple[float, float]) -> bool:
    size = max(first[1], other[1])
    return size > 0 and abs(first[0] - other[0]) <= _TOLERANCE * size


def _sample(dataset: Any) -> _Sample | None:
    if isinstance(dataset, Dataset):
        if dataset.rows is None:
            return None
        found = dataset.rows
        spread = np.linspace(0, max(found.length - 1, 0), _SPREAD).astype(np.intp)
        leaves, structure = flatten(found.nest)
        some = [_rows(leaf, np.unique(spread)[: found.length]) for leaf in leaves]
        return _told(some, f"{found.length} rows of {text_of(structure)}", 1, _order(dataset))
    if isinstance(dataset, list) and dataset:
        nest = [as_element(dataset[i]) for i in sorted({0, len(dataset) // 2, len(dataset) - 1})]
        leaves, structure = flatten(nest)
        some = [_plain(leaf) for leaf in leaves]
        return _told(some, f"{len(dataset)} elements of {text_of(structure)}", 0, [])
    return None


def _rows(leaf: Any, wanted: Array) -> Array | None:
    """Return some rows of a component, if it is a plain array."""
    array = leaf if isinstance(leaf, np.ndarray) else None
    if array is None or not array.size:
        return array
    nbytes = array.nbytes // len(array)
    # Of long rows fewer, of which the last one is one.
    step = max(1, len(wanted) * nbytes // _MOST_BYTES)
    return _plain(array[np.unique(np.append(wanted[::step], wanted[-1]))])


def _plain(leaf: Any) -> Array | None:
    """Return what can be compared by its bytes: no objects, and no structures with gaps."""
    found = on_device.to_host(leaf)
    array = leaf if found is None else found
    is_plain = isinstance(array, (np.ndarray, np.generic)) and array.dtype.kind in "?biufcSUmM"
    return np.asarray(array) if is_plain and array.dtype.itemsize else None


def _order(dataset: Dataset) -> list[Any]:
    """Return the numbers of the rows that come first, batch by batch, where that is quick."""
    raw, load = dataset.raw(0)
    if load is not dataset.rows or dataset.rows.length > _LONGEST_ORDER:
        return []
    return [np.ravel(one).tolist() for one in itertools.islice(raw, _FIRST)]


def _told(arrays: list[Array | None], what: str, first_axis: int, order: list[Any]) -> _Sample:
    kinds = [None if one is None else f"{one.dtype} {one.shape[first_axis:]}" for one in arrays]
    flat = [one.ravel()[: _MOST_BYTES // one.itemsize] for one in arrays if one is not None]
    return _Sample(
        f"{what}: {', '.join(map(str, kinds))}",
        tuple(_digest(array.tobytes()) for array in flat),
        tuple(_sums(array) for array in flat),
        _digest(repr(order).encode()),
    )


def _sums(array: Array) -> tuple[float, float]:
    """Return sums of floats, whose last bits may differ between processors."""
    if array.dtype.kind not in "fc":
        return 0.0, 0.0
    values = np.abs(array) if array.dtype.kind == "c" else array
    finite = np.nan_to_num(values.astype(np.float64), posinf=1.0, neginf=-1.0)
    bounded = np.clip(finite, -_LARGE, _LARGE)
    weights = np.arange(1, bounded.size + 1)
    return float(bounded @ weights), float(np.abs(bounded) @ weights)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
