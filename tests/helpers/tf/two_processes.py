"""Compare a snippet under ours and under TensorFlow's MultiWorkerMirroredStrategy, on ranks.

Each rank of the job is one of its workers, on this machine. Both strategies run a snippet in the
same processes, and each rank compares what it gets from the one and from the other.

It has to be made before anything else that TensorFlow does in a process. After a collective of it
that failed, TensorFlow fails or hangs in all that follow: no snippet may go on after one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

import mpistrat.tensorflow as distribute
from helpers.free_port import LOCAL_HOST, free_port
from helpers.tf.cases import Leaf, Raised, Rows, Snippet, leaf
from mpistrat.collectives import Communicator
from mpistrat.testing.tasks.importing import load_test_module

__all__ = ["check_same", "differs", "snippets", "theirs"]


@functools.cache
def theirs() -> Any:
    """Return TensorFlow's strategy; one for all tests, since it cannot be closed. **Collective**.

    Nothing of TensorFlow may have run before.
    """
    with Communicator() as communicator:
        rank, ports = communicator.rank, communicator.allgather_object(free_port())
    # Whatever proxy there is, it cannot reach this machine.
    os.environ.update(no_grpc_proxy=LOCAL_HOST)
    workers = tf.train.ClusterSpec({"worker": [f"{LOCAL_HOST}:{port}" for port in ports]})
    return tf.distribute.MultiWorkerMirroredStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            workers, task_type="worker", task_id=rank, rpc_layer="grpc"
        )
    )


def snippets(file: Path) -> Mapping[str, Snippet]:
    """Return the snippets of a test file, by the names of their tests. **Local.**"""
    members = vars(load_test_module(f"snippets_of_{file.stem}", file))
    return {name: one.snippet for name, one in members.items() if hasattr(one, "snippet")}


@dataclass(frozen=True)
class _Seen:
    """A leaf of an outcome, and how Python shows it."""

    leaf: Leaf
    shown: str


def check_same(snippet: Snippet) -> None:
    """Check that each rank gets of ours what it gets of TensorFlow's. **Collective**.

    Values, dtypes, shapes, classes and what Python shows are equal; an error is of TensorFlow's
    class, or derived from it.
    """
    want = _outcome(theirs(), snippet)
    with distribute.MultiWorkerMirroredStrategy() as ours:
        found = _outcome(ours, snippet)
    tf.nest.assert_same_structure(want, found)
    for pair in zip(tf.nest.flatten(want), tf.nest.flatten(found), strict=True):
        _check_leaf(*pair)


def differs(snippet: Snippet) -> bool:
    """Return whether any rank gets something else of ours, or nothing of TensorFlow's.

    **Collective**.
    """
    theirs()
    try:
        check_same(snippet)
        mine = False
    except Exception:  # noqa: BLE001 - TensorFlow refuses by errors of any class
        mine = True
    with Communicator() as communicator:
        return any(communicator.allgather_object(mine))


def _outcome(strategy: Any, snippet: Callable[[Any], Any]) -> Any:
    def seen(value: Any) -> _Seen:
        is_wrapped = isinstance(value, (Raised, Rows))
        return _Seen(leaf(strategy, value), "" if is_wrapped else repr(value))

    return tf.nest.map_structure(seen, snippet(strategy))


def _check_leaf(want: _Seen, found: _Seen) -> None:
    error, mine = (next(iter(one.leaf.values), None) for one in (want, found))
    if isinstance(error, Raised):
        assert isinstance(mine, Raised), f"{error} is wanted, not {found}"
        assert error.kinds[0] in mine.kinds, f"{error} is wanted, not {mine}"
    else:
        assert found == want
