"""The strategies of tf.distribute for supercomputers: MPI ranks are the replicas.

``mpistrat.X`` is ``tf.distribute.X``, for NumPy arrays. Start one program with ``mpirun`` or
``srun``; everything works in a single process too. Names are loaded when they are first used, and
MPI starts with the first strategy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mpistrat.cluster import process_end

__version__ = "0.1.0"

# For type checkers and editors, which cannot follow the table below; a test compares the two.
# isort: off
if TYPE_CHECKING:
    from mpistrat import (
        cluster_resolver as cluster_resolver,
        coordinator as coordinator,
        data as data,
        errors as errors,
        experimental as experimental,
        nn as nn,
        optimizers as optimizers,
        random as random,
        train as train,
    )
    from mpistrat.cluster.topology import Topology as Topology
    from mpistrat.collectives.backends.base import Backend as Backend, Capabilities as Capabilities
    from mpistrat.collectives.backends.registry import (
        available_backends as available_backends,
        register_backend as register_backend,
    )
    from mpistrat.collectives.communicator import Communicator as Communicator
    from mpistrat.collectives.health.call_record import CallRecord as CallRecord
    from mpistrat.collectives.progress.work import Work as Work
    from mpistrat.coordinator.server import Server as Server
    from mpistrat.preemption.handler import PreemptionHandler as PreemptionHandler
    from mpistrat.preemption.preempted import Preempted as Preempted
    from mpistrat.strategy.base import Strategy as Strategy
    from mpistrat.strategy.central_storage.strategy import (
        CentralStorageStrategy as CentralStorageStrategy,
    )
    from mpistrat.strategy.context import (
        experimental_set_strategy as experimental_set_strategy,
        get_replica_context as get_replica_context,
        get_strategy as get_strategy,
        has_strategy as has_strategy,
        in_cross_replica_context as in_cross_replica_context,
    )
    from mpistrat.strategy.extended import StrategyExtended as StrategyExtended
    from mpistrat.strategy.indexed_slices import IndexedSlices as IndexedSlices
    from mpistrat.strategy.input.distributed import DistributedDataset as DistributedDataset
    from mpistrat.strategy.input.input_context import (
        InputContext as InputContext,
        InputOptions as InputOptions,
        InputReplicationMode as InputReplicationMode,
        RunOptions as RunOptions,
    )
    from mpistrat.strategy.input.iterator import (
        DistributedIterator as DistributedIterator,
        InputIterator as InputIterator,
    )
    from mpistrat.strategy.mirrored import MirroredStrategy as MirroredStrategy
    from mpistrat.strategy.multi_worker import (
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
    )
    from mpistrat.strategy.one_device import OneDeviceStrategy as OneDeviceStrategy
    from mpistrat.strategy.parameter_server.strategy import (
        ParameterServerStrategy as ParameterServerStrategy,
    )
    from mpistrat.strategy.reduction.cross_device_ops import (
        CrossDeviceOps as CrossDeviceOps,
        HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
        NcclAllReduce as NcclAllReduce,
        ReductionToOneDevice as ReductionToOneDevice,
    )
    from mpistrat.strategy.reduction.reduce_op import ReduceOp as ReduceOp
    from mpistrat.strategy.replicas.replica_context import ReplicaContext as ReplicaContext
    from mpistrat.strategy.values import (
        DistributedValues as DistributedValues,
        Mirrored as Mirrored,
        PerReplica as PerReplica,
    )
    from mpistrat.strategy.variables.base import (
        Variable as Variable,
        variable_creator_scope as variable_creator_scope,
    )
    from mpistrat.strategy.variables.options import (
        VariableAggregation as VariableAggregation,
        VariableSynchronization as VariableSynchronization,
    )
    from mpistrat.strategy.variables.sharded.variable import ShardedVariable as ShardedVariable
    from mpistrat.tensorflow.tpu.strategy import TPUStrategy as TPUStrategy
# isort: on

# Where each public name lives, for loading it on first use: the list of them is made of this.
_HOMES = {
    "cluster.topology": ("Topology",),
    "collectives.backends.base": ("Backend", "Capabilities"),
    "collectives.communicator": ("Communicator",),
    "collectives.health.call_record": ("CallRecord",),
    "collectives.backends.registry": ("available_backends", "register_backend"),
    "collectives.progress.work": ("Work",),
    "coordinator.server": ("Server",),
    "preemption.handler": ("PreemptionHandler",),
    "preemption.preempted": ("Preempted",),
    "strategy.base": ("Strategy",),
    "strategy.central_storage.strategy": ("CentralStorageStrategy",),
    "strategy.context": (
        "experimental_set_strategy",
        "get_replica_context",
        "get_strategy",
        "has_strategy",
        "in_cross_replica_context",
    ),
    "strategy.reduction.cross_device_ops": (
        "CrossDeviceOps",
        "HierarchicalCopyAllReduce",
        "NcclAllReduce",
        "ReductionToOneDevice",
    ),
    "strategy.extended": ("StrategyExtended",),
    "strategy.indexed_slices": ("IndexedSlices",),
    "strategy.input.distributed": ("DistributedDataset",),
    "strategy.input.input_context": (
        "InputContext",
        "InputOptions",
        "InputReplicationMode",
        "RunOptions",
    ),
    "strategy.input.iterator": ("DistributedIterator", "InputIterator"),
    "strategy.mirrored": ("MirroredStrategy",),
    "strategy.multi_worker": ("MultiWorkerMirroredStrategy",),
    "strategy.one_device": ("OneDeviceStrategy",),
    "strategy.parameter_server.strategy": ("ParameterServerStrategy",),
    "strategy.reduction.reduce_op": ("ReduceOp",),
    "strategy.replicas.replica_context": ("ReplicaContext",),
    "strategy.variables.sharded.variable": ("ShardedVariable",),
    "strategy.values": ("DistributedValues", "Mirrored", "PerReplica"),
    "strategy.variables.options": ("VariableAggregation", "VariableSynchronization"),
    "strategy.variables.base": ("Variable", "variable_creator_scope"),
    "tensorflow.tpu.strategy": ("TPUStrategy",),
}
_MODULES = (
    *("cluster_resolver", "coordinator", "data", "errors", "experimental"),
    *("nn", "optimizers", "random", "train"),
)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_LOADS_TENSORFLOW = {"TPUStrategy"}  # which ``from mpistrat import *`` must not

# Checkers take what the block above imports "as" itself for public, without this list.
__all__ = sorted({*_HOME_OF, *_MODULES, "__version__"} - _LOADS_TENSORFLOW)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise _without_tensorflow(name) from error
    globals()[name] = value
    return value


def _without_tensorflow(name: str) -> Exception:
    from mpistrat.errors import BackendUnavailableError

    return BackendUnavailableError(
        f"mpistrat.{name} drives TensorFlow, which is not installed; pip install"
        ' "mpistrat[tensorflow]"'
    )


process_end.end_job_on_early_failure()


def __dir__() -> list[str]:
    return sorted({*__all__, *_LOADS_TENSORFLOW})
