"""``tf.distribute.experimental`` for arrays, under the same names."""

from mpistrat import coordinator
from mpistrat.strategy.central_storage.strategy import CentralStorageStrategy
from mpistrat.strategy.input.input_context import ValueContext
from mpistrat.strategy.multi_worker import MultiWorkerMirroredStrategy
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy
from mpistrat.strategy.reduction.communication_options import (
    CommunicationImplementation,
    CommunicationOptions,
)
from mpistrat.tables import partitioners

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "ValueContext",
    "coordinator",
    "partitioners",
]

CollectiveCommunication = CommunicationImplementation
CollectiveHints = CommunicationOptions
