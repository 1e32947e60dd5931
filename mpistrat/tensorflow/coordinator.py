"""``tf.distribute.coordinator``, with a `ClusterCoordinator` that detects lost ranks.

As in :mod:`mpistrat.tensorflow`, what is not ours is TensorFlow's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.servers.evaluator import SidecarEvaluator

__all__ = ["ClusterCoordinator", "SidecarEvaluator"]

_LOOK_S = 0.2  # between two looks at the ranks, while functions run


class ClusterCoordinator(distribute.coordinator.ClusterCoordinator):  # type: ignore[misc]
    """Send functions to the workers of a `ParameterServerStrategy`; one for each strategy.

    Parameters
    ----------
    strategy
        The strategy.

    Notes
    -----
    **Local**: only the chief has one. Functions may take any time, so waiting for them has no
    deadline; it ends with `PeerLostError` if the process of a rank is gone.

    References
    ----------
    tf.distribute.coordinator.ClusterCoordinator.
    """

    def __new__(cls, strategy: Any) -> Any:
        """Return the coordinator that the strategy has already, or a new one."""
        if not hasattr(strategy, "tasks"):
            raise UsageError(
                f"ClusterCoordinator of a {type(strategy).__name__}; expected a"
                " mpistrat.tensorflow.ParameterServerStrategy"
            )
        return super().__new__(cls, strategy)

    def schedule(self, fn: Callable[..., Any], args: Any = None, kwargs: Any = None) -> Any:
        """See tf.distribute.coordinator.ClusterCoordinator.schedule.

        Raises
        ------
        ClosedError
            The strategy was closed.
        """
        self._check()
        return super().schedule(fn, args, kwargs)

    def join(self) -> None:
        """See tf.distribute.coordinator.ClusterCoordinator.join.

        Raises
        ------
        PeerLostError
            A worker or a parameter server is gone; it is named.
        ClosedError
            The strategy was closed.
        """
        self._check()
        # TensorFlow's own wait never ends for a function whose worker is gone for good.
        while not private_api.all_functions_ended(self, _LOOK_S):
            self._check()

    def done(self) -> bool:
        """See tf.distribute.coordinator.ClusterCoordinator.done; it raises as `join` does."""
        self._check()
        return bool(super().done())

    def fetch(self, val: Any) -> Any:
        """See tf.distribute.coordinator.ClusterCoordinator.fetch; it raises as `join` does."""
        for one in tf.nest.flatten(val):
            if isinstance(one, distribute.coordinator.RemoteValue):
                # TensorFlow's fetch would wait for it without a look at the ranks.
                self.wait_for(one)
        return super().fetch(val)

    def wait_for(self, remote_value: Any) -> None:
        """Wait for a result or its error; raise as `join` does if neither can come."""
        while not private_api.is_available(remote_value, _LOOK_S):
            self._check()

    def _check(self) -> None:
        self.strategy.require_open()
        self.strategy.tasks.check()


def __getattr__(name: str) -> Any:
    home = distribute.coordinator
    return getattr(home if hasattr(home, name) else distribute.experimental.coordinator, name)


def __dir__() -> list[str]:
    names = (dir(distribute.coordinator), dir(distribute.experimental.coordinator))
    return sorted({*globals(), *names[0], *names[1]})
