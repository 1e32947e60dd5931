"""Trace a ``tf.function`` given to ``run`` once for all replicas of this rank.

A collective needs the values of all local replicas in one graph. So the function is traced around
them, as TensorFlow's strategies do it, not once by each of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mpistrat.tensorflow.private import graph as private_graph

__all__ = ["Lifted", "is_lifted"]


def is_lifted(fn: Any, devices: Sequence[str]) -> bool:
    """Whether TensorFlow would trace `fn` around the replicas on `devices`.

    A function that XLA compiles for GPUs is traced by each replica: XLA compiles for one device.
    """
    if not private_graph.is_function(fn):
        return False
    return not (private_graph.is_compiled(fn) and all("GPU" in device for device in devices))


class Lifted:
    """Functions traced around all local replicas, cached as long as the program keeps them.

    Parameters
    ----------
    call_replicas
        Calls a Python function in each local replica, with arguments and keyword arguments.
    """

    def __init__(self, call_replicas: Callable[[Any, Any, Any], Any]) -> None:
        self._call_replicas = call_replicas
        self._known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def of(self, fn: Any) -> Any:
        """Return the function of all local replicas that has the options of `fn`. **Local.**"""
        found = self._known.get(fn)
        if found is None:
            found = private_graph.with_body(fn, self._around(fn.python_function))
            self._known[fn] = found
        return found

    def _around(self, body: Callable[..., Any]) -> Callable[..., Any]:
        call_replicas = self._call_replicas

        def around(*args: Any, **kwargs: Any) -> Any:
            # AutoGraph leaves this package's functions alone, and so what they call: it is told
            # here.
            return call_replicas(private_graph.converted(body), args, kwargs)

        return around
