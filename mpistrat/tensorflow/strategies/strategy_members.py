"""Members of a tf.distribute strategy whose replicas are on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.collectives import Communicator
from mpistrat.tensorflow.keras import hooks as keras_hooks
from mpistrat.tensorflow.keras import legacy as keras_legacy
from mpistrat.tensorflow.own_strategies import OnRanks

__all__ = ["RankMembers"]


class RankMembers(OnRanks):
    """Override members of TensorFlow's strategies; `extended` has the bridge between ranks."""

    extended: Any

    @property
    def communicator(self) -> Communicator:
        """Collectives of arrays between the ranks."""
        communicator: Communicator = self.extended.bridge.communicator
        return communicator

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, which writes files and logs.

        All ranks have to save checkpoints and models with ``ON_READ`` variables, such as Keras's
        metrics: these are summed over them. Of what all save to one path one is kept.
        """
        return self.communicator.rank == 0

    def scope(self) -> Any:
        """See tf.distribute.Strategy.scope. **Local.**

        It can be entered after ``close()`` too, since reading a variable does so.
        """
        keras_hooks.install()
        keras_legacy.install()
        return super().scope()  # type: ignore[misc]

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """See tf.distribute.Strategy.run. **Local**, unless `fn` calls collectives.

        If layers of Keras's keep something of their batches, as BatchNormalization its moving
        mean, the call ends with its mean over all replicas, and is **Collective**.

        If it raises here, the other ranks are told in their next collective, unless they fail
        alike.
        """
        self.extended.bridge.require_open()
        keras_hooks.install()
        keras_legacy.install()
        try:
            return super().run(  # type: ignore[misc]
                fn, args=args, kwargs=kwargs, options=options
            )
        except BaseException as error:
            self.communicator.fail(error)
            raise
