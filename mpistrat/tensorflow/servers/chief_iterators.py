"""Refuse to iterate over distributed data on the chief, which has no batches of it."""

from __future__ import annotations

from typing import Any

from mpistrat.errors import UsageError
from mpistrat.tensorflow.own_strategies import has_servers
from mpistrat.tensorflow.private import data as private_data

__all__ = ["refuse_iterators"]


def _refuse(strategy: Any) -> None:
    # TensorFlow's own text names create_per_worker_dataset only, whose result fit does not accept.
    if has_servers(strategy):
        raise UsageError(
            "iter() of distributed data on the chief of a ParameterServerStrategy: only workers"
            " read it; give fit, evaluate and predict the tf.data.Dataset itself, and functions"
            " that are scheduled iter(coordinator.create_per_worker_dataset(data))"
        )


def refuse_iterators() -> None:
    """Wrap TensorFlow's classes of distributed data; once in a process. **Local.**"""
    private_data.on_unbuilt_iterators(_refuse)
