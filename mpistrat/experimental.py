"""``tf.distribute.experimental`` for arrays, dot for dot."""

from mpistrat import coordinator
from mpistrat.ps import partitioners
from mpistrat.strategy.central_storage import CentralStorageStrategy
from mpistrat.strategy.communication_options import (
    CommunicationImplementation,
    CommunicationOptions,
)
from mpistrat.strategy.input.input_context import ValueContext
from mpistrat.strategy.multi_worker import MultiWorkerMirroredStrategy
from mpistrat.strategy.parameter_server import ParameterServerStrategy

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
