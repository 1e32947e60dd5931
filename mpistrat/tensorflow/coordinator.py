"""``tf.distribute.coordinator``, with a `ClusterCoordinator` that detects lost ranks.

As in :mod:`mpistrat.tensorflow`, what is not ours is TensorFlow's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import ClosedError, UsageError
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.servers.evaluator import SidecarEvaluator

__all__ = ["ClusterCoordinator", "SidecarEvaluator"]

_LOOK_S = 0.2  # between two looks at the ranks, while functions run


class _RemoteValue(private_api.RemoteValueImpl):  # type: ignore[misc]
    """The result of a scheduled function, whose waits end with an error if it can never come."""

    coordinator: ClusterCoordinator

    def get(self) -> Any:
        """See tf.distribute.coordinator.RemoteValue.get, which `fetch` calls, too."""
        # TensorFlow's wait has no deadline. A cluster that is stopped neither runs the functions
        # in its queue nor marks them cancelled, and puts some of those that it has cancelled back.
        self.coordinator.wait_for(self)
        try:
            return super().get()
        except tf.errors.CancelledError as error:
            if self.coordinator.strategy.is_closed:
                raise _cancelled() from error
            raise


def _cancelled() -> ClosedError:
    return ClosedError(
        "a scheduled function was cancelled, at the latest when its ParameterServerStrategy was"
        " closed; fetch results before close(), or wait for all by ClusterCoordinator.join()"
    )


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
            The strategy was closed. So does ``fetch`` or ``get`` of the result if it was closed
            before the function ended; they also raise `PeerLostError`, as `join` does.
        """
        self._check()
        found = super().schedule(fn, args, kwargs)
        # TensorFlow makes it deep inside, and offers no way to choose the class.
        # The class comes last: a worker's thread may call `get` at any time.
        found.coordinator = self
        found.__class__ = _RemoteValue
        return found

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
            if self.strategy.is_closed:
                raise _cancelled()
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
