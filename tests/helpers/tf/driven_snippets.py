"""Run a snippet where one rank drives TensorFlow's strategy, and compare what all ranks get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mpistrat.tensorflow as distribute
from helpers.tf.cases import Case, Leaf, Raised, Snippet, mirrored_cpus, outcome

__all__ = ["check_by_driver", "check_driven"]

_ON_DRIVER = "ValueOnDriver"


def check_driven(snippet: Snippet, replicas: int = 2) -> None:
    """Check a snippet that all ranks run, each call of which is driven. **Collective.**

    The driving rank gets what TensorFlow's strategy gives in one process. The others get the same
    where it is no value of replicas.
    """
    with distribute.TFBackedStrategy(lambda: mirrored_cpus(replicas), driver=0) as strategy:
        mine = outcome(strategy, snippet)
        want, is_driver = _wanted(strategy, snippet, replicas), strategy.is_driver
    _check(want, mine, may_be_on_driver=not is_driver)


def check_by_driver(snippet: Snippet, replicas: int = 2) -> None:
    """Check a snippet that the driving rank runs for all, at once. **Collective.**"""
    with distribute.TFBackedStrategy(lambda: mirrored_cpus(replicas), driver=0) as strategy:
        mine = strategy.on_driver(lambda: outcome(strategy, snippet))
        want = _wanted(strategy, snippet, replicas)
    _check(want, mine, may_be_on_driver=False)


def _wanted(strategy: Any, snippet: Snippet, replicas: int) -> Any:
    """Return what TensorFlow's strategy gives on the driving rank. **Collective.**"""
    is_driver = strategy.is_driver
    want = outcome(Case(1, replicas).reference, snippet) if is_driver else None
    return strategy.communicator.bcast_object(want)


def _check(want: Any, found: Any, may_be_on_driver: bool) -> None:
    if isinstance(found, Leaf):
        if may_be_on_driver and (found.kind == _ON_DRIVER or not found.values):
            return
        assert isinstance(want, Leaf), f"{want} is wanted, not {found}"
        _check_leaf(want, found)
        return
    assert type(want) is type(found), f"{want} is wanted, not {found}"
    assert len(want) == len(found)
    for key in _keys(want):
        _check(want[key], found[key], may_be_on_driver)


def _keys(nest: Mapping[Any, Any] | Sequence[Any]) -> Any:
    return nest if isinstance(nest, Mapping) else range(len(nest))


def _check_leaf(want: Leaf, found: Leaf) -> None:
    first = want.values[0] if want.values else None
    if isinstance(first, Raised):
        assert isinstance(found.values[0], Raised), f"{first} is wanted, not {found}"
        assert first.kinds[0] in found.values[0].kinds, f"{first} is wanted, not {found}"
    elif want.kind == "rows":
        assert sorted(found.values) == sorted(want.values)
    else:
        assert found == want
