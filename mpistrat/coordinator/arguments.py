"""The arguments of a scheduled function: values of each worker, results of other calls."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from mpistrat.coordinator.per_worker import PerWorkerValues
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.shipping import NO_ARGUMENTS, pack
from mpistrat.errors import UsageError
from mpistrat.strategy.nest import flatten, map_nest

__all__ = ["Arguments", "pack_arguments", "unpack_arguments"]


class Arguments(NamedTuple):
    """What a call is sent with.

    Attributes
    ----------
    packed
        The arguments as bytes; a list of them by worker if they differ.
    needed
        The results among them, which are sent along when they are there.
    """

    packed: bytes | list[bytes] = NO_ARGUMENTS
    needed: tuple[RemoteValue, ...] = ()


_NO_ARGUMENTS = Arguments()


@dataclass(frozen=True)
class _Place:
    """Stands for a result among the arguments."""

    index: int


def pack_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, num_workers: int
) -> Arguments:
    """Return what a call of the function `name` is sent with.

    Raises
    ------
    ArgumentTypeError
        An argument cannot travel.
    UsageError
        `PerWorkerValues` of another number of workers.
    Exception
        Of the function whose result is an argument, if that has failed.
    """
    if not args and not kwargs:
        return _NO_ARGUMENTS
    leaves = flatten((args, kwargs))[0]
    needed = tuple(leaf for leaf in leaves if isinstance(leaf, RemoteValue))
    if needed:
        for value in needed:
            value.raise_error()
        # map_nest() visits leaves in the order of flatten(), so these count places in `needed`.
        numbers = iter(range(len(needed)))
        args, kwargs = map_nest(
            lambda leaf: _Place(next(numbers)) if isinstance(leaf, RemoteValue) else leaf,
            (args, kwargs),
        )
    what = f"an argument of {name}"
    if not any(isinstance(leaf, PerWorkerValues) for leaf in leaves):
        return Arguments(_packed((args, kwargs), what), needed)
    of_each = [_own((args, kwargs), name, worker, num_workers) for worker in range(num_workers)]
    return Arguments([_packed(own, what) for own in of_each], needed)


def _packed(arguments: tuple[Any, ...], what: str) -> bytes:
    args, kwargs = arguments
    return pack(arguments, what, SimpleNamespace(args=args, kwargs=kwargs))


def _own(arguments: Any, name: str, worker: int, num_workers: int) -> Any:
    """Return the arguments as a worker gets them."""

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, PerWorkerValues):
            return leaf
        if len(leaf.values) != num_workers:
            raise UsageError(
                f"PerWorkerValues of {len(leaf.values)} values as an argument of {name};"
                f" expected one for each of the {num_workers} workers"
            )
        return leaf.values[worker]

    return map_nest(own, arguments)


def unpack_arguments(packed: Any, results: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments on a worker, given the results among them as bytes."""
    if packed == NO_ARGUMENTS:  # the usual case; to load it takes longer
        return (), {}
    args, kwargs = pickle.loads(packed)
    if results:
        values = [pickle.loads(one) for one in results]
        args, kwargs = map_nest(
            lambda leaf: values[leaf.index] if isinstance(leaf, _Place) else leaf, (args, kwargs)
        )
    return args, kwargs
