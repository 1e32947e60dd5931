"""Make the elements of a data set: from rows of arrays, numbers, a generator, or another one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.strategy.input.array_spec import ArraySpec, check_signature, spec_of
from mpistrat.strategy.input.dataset_rows import Rows, as_arrays
from mpistrat.strategy.input.dataset_streams import UNKNOWN, Epoch, Stream
from mpistrat.strategy.nest import map_nest
from mpistrat.types import Array, Nest

__all__ = ["Plan", "enumerated", "mapped", "of_generator", "of_range", "of_rows"]


@dataclass(frozen=True)
class Plan:
    """How a data set makes its elements.

    Data sets of slices stream row numbers, which cost next to nothing to shuffle, batch and cut
    over replicas; only what this rank keeps is fetched, by `load`, in one go.
    """

    stream: Stream
    load: Callable[[Any], Nest]
    row_spec: Callable[[], Nest]
    length: int
    batch_shape: tuple[int | None, ...] = ()
    buffer_size: int = 0
    rows: Rows | None = None  # the arrays that it is made of

    @property
    def spec(self) -> Nest:
        """The nest of `ArraySpec` of an element; None where a dimension varies."""

        def widen(spec: ArraySpec) -> ArraySpec:
            if spec.shape is None:
                return spec
            return ArraySpec((*self.batch_shape, *spec.shape), spec.dtype)

        return map_nest(widen, self.row_spec())


def of_rows(rows: Rows) -> Plan:
    """Plan one element of each row of arrays."""
    return Plan(
        stream=lambda epoch: iter(range(rows.length)),
        load=rows,
        row_spec=lambda: _without_rows(rows.nest),
        length=rows.length,
        rows=rows,
    )


def of_range(numbers: range, dtype: np.dtype[Any]) -> Plan:
    """Plan one 0-d element of each number."""

    def load(index: int | Array) -> Nest:
        value = numbers.start + numbers.step * index
        return dtype.type(value) if isinstance(value, int) else value.astype(dtype)

    return Plan(
        stream=lambda epoch: iter(range(len(numbers))),
        load=load,
        row_spec=lambda: ArraySpec((), dtype),
        length=len(numbers),
    )


def of_generator(generator: Callable[[], Iterable[Nest]], signature: Nest | None) -> Plan:
    """Plan the elements of what `generator` returns in each epoch."""

    def stream(epoch: Epoch) -> Iterator[Nest]:
        for element in generator():
            if signature is None:
                yield as_arrays(element)
            else:
                yield check_signature(element, signature)

    def spec() -> Nest:
        if signature is None:
            return _peek(stream, unknown_batch=True)
        return spec_of(signature, unknown_batch=False)

    return _of_elements(stream, UNKNOWN, spec)


def mapped(source: Plan, map_func: Callable[..., Nest]) -> Plan:
    """Plan ``map_func(element)`` for each element; a tuple is passed as arguments."""

    def stream(epoch: Epoch) -> Iterator[Nest]:
        for raw in source.stream(epoch):
            element = source.load(raw)
            result = map_func(*element) if type(element) is tuple else map_func(element)
            # TensorFlow, too, takes a list that a function of map() returns for a tuple of
            # components.
            yield tuple(result) if isinstance(result, list) else result

    is_ragged = bool(source.batch_shape) and source.batch_shape[0] is None
    return _of_elements(stream, source.length, lambda: _peek(stream, is_ragged), source.rows)


def enumerated(source: Plan, start: int) -> Plan:
    """Plan ``(number, element)`` for each element."""

    def stream(epoch: Epoch) -> Iterator[Nest]:
        elements = map(source.load, source.stream(epoch))
        return zip(map(np.int64, itertools.count(start)), elements, strict=False)

    return _of_elements(
        stream, source.length, lambda: (ArraySpec((), np.int64), source.spec), source.rows
    )


def _of_elements(
    stream: Stream, length: int, spec: Callable[[], Nest], rows: Rows | None = None
) -> Plan:
    """Plan elements that are streamed themselves rather than by row number."""
    # Cached, since to tell the spec may take making an element.
    return Plan(stream, lambda element: element, functools.cache(spec), length, rows=rows)


def _peek(stream: Stream, unknown_batch: bool) -> Nest:
    for element in stream((0,)):
        return spec_of(element, unknown_batch)
    raise UsageError(
        "element_spec: the data set has no element to look at; pass output_signature to"
        " from_generator, or make sure that it is not empty"
    )


def _without_rows(nest: Nest) -> Nest:
    specs = spec_of(nest, unknown_batch=False)
    return map_nest(lambda spec: ArraySpec(spec.shape[1:], spec.dtype), specs)
