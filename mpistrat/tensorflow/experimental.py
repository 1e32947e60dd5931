"""``tf.distribute.experimental``, with this package's strategies in place of TensorFlow's.

As in :mod:`mpistrat.tensorflow`, what is not ours is TensorFlow's own.
"""

from __future__ import annotations

from typing import Any

from mpistrat.tensorflow import coordinator
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.strategies import multi_worker
from mpistrat.tensorflow.strategies.central_storage import CentralStorageStrategy
from mpistrat.tensorflow.strategies.parameter_server import ParameterServerStrategy

__all__ = [
    "CentralStorageStrategy",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "coordinator",
]


class MultiWorkerMirroredStrategy(multi_worker.MultiWorkerMirroredStrategy):
    """As `mpistrat.tensorflow.MultiWorkerMirroredStrategy`, with its older arguments.

    Parameters
    ----------
    communication
        A ``tf.distribute.experimental.CommunicationImplementation``.
    cluster_resolver, comm, backend
        As of the other one.

    Notes
    -----
    **Collective** over `comm`.

    References
    ----------
    tf.distribute.experimental.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        communication: Any = distribute.experimental.CommunicationImplementation.AUTO,
        cluster_resolver: Any = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        options = distribute.experimental.CommunicationOptions(implementation=communication)
        super().__init__(cluster_resolver, options, comm=comm, backend=backend)


def __getattr__(name: str) -> Any:
    return getattr(distribute.experimental, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(distribute.experimental)})
