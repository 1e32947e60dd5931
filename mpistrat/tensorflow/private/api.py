"""TensorFlow's private modules, as far as they are used; only this folder touches them.

They have no promise of staying as they are: on a version that was not tested this warns, and if
something is missing, it says what.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf

from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once

__all__ = [
    "CentralExtended",
    "DatasetIterator",
    "InputFunctionIterator",
    "MirroredExtended",
    "RemoteValueImpl",
    "SyncOnReadVariable",
    "all_functions_ended",
    "always_wrapped",
    "checkpointed_value",
    "chosen_operations",
    "datasets_from_function",
    "distributed_dataset",
    "distributed_variable",
    "divided",
    "is_available",
    "is_default_strategy",
    "is_mirrored",
    "is_mirrored_strategy",
    "is_one_resource",
    "is_strategy",
    "load",
    "of_replica",
    "on_host",
    "placed",
    "reads_across_replicas",
    "reduced_bare_value",
    "replace_deletion",
    "stop_coordinator",
    "summed",
    "wrap_save_counters",
    "wrap_savers",
]

TESTED = ("2.21",)

_LOG = get_logger(__name__)
_PREFIX = "tensorflow.python."
_NEEDED = {
    "autograph.core.config": ("CONVERSION_RULES", "DoNotConvert"),
    "checkpoint.checkpoint": ("Checkpoint", "CheckpointV1"),
    "checkpoint.checkpoint_management": ("_delete_file_if_exists",),
    "checkpoint.functional_saver": ("MultiDeviceSaver",),
    "distribute.collective_all_reduce_strategy": ("CollectiveAllReduceExtended",),
    "distribute.coordinator.cluster_coordinator": ("Cluster", "_CoordinatedClosureQueue"),
    "distribute.coordinator.values": ("RemoteValueImpl",),
    "distribute.cross_device_ops": (
        "_devices_match",
        "get_devices_from",
        "reduce_non_distributed_value",
        "simple_broadcast",
    ),
    "distribute.cross_device_utils": (
        "aggregate_tensors_or_indexed_slices",
        "divide_by_n_tensors_or_indexed_slices",
    ),
    "distribute.distribute_lib": (
        "StrategyBase",
        "_get_default_strategy",
        "enter_or_assert_strategy",
    ),
    "distribute.distribute_utils": (
        "VARIABLE_CLASS_MAPPING",
        "VARIABLE_POLICY_MAPPING",
        "create_mirrored_variable",
        "is_mirrored",
        "regroup",
        "select_replica",
    ),
    "distribute.input_util": (
        "get_distributed_dataset",
        "get_distributed_datasets_from_function",
    ),
    "distribute.mirrored_strategy": ("MirroredExtended",),
    "distribute.parameter_server_strategy": ("ParameterServerStrategyExtended",),
    "distribute.v1.input_lib": ("DatasetIterator", "InputFunctionIterator"),
    "distribute.ps_values": ("CachingVariable",),
    "distribute.values": ("Mirrored", "SyncOnReadVariable"),
    "distribute.values_util": ("in_replica_update_context", "is_saving_non_distributed"),
    "ops.resource_variable_ops": ("BaseResourceVariable",),
    "saved_model.save": ("save_and_return_nodes",),
    "trackable.base": ("CheckpointInitialValue",),
}


def load(needed: Mapping[str, Sequence[str]]) -> dict[str, ModuleType]:
    """Import TensorFlow's private modules, and check that all needed members exist.

    Parameters
    ----------
    needed
        Members by module, which is named without ``tensorflow.python``.

    Raises
    ------
    BackendUnavailableError
        Something is missing in this version of TensorFlow.
    """
    modules, missing = {}, []
    for name, members in needed.items():
        try:
            modules[name] = importlib.import_module(_PREFIX + name)
        except ImportError:
            missing.append(_PREFIX + name)
            continue
        found = vars(modules[name])
        missing += [f"{_PREFIX}{name}.{member}" for member in members if member not in found]
    if missing:
        raise BackendUnavailableError(
            f"TensorFlow {tf.__version__} lacks {', '.join(missing)}, which mpistrat.tensorflow"
            f" builds on; install TensorFlow {' or '.join(TESTED)}"
        )
    return modules


def _is_tested() -> bool:
    return ".".join(tf.__version__.split(".")[:2]) in TESTED


if not _is_tested():
    warn_once(
        _LOG,
        "TensorFlow version",
        f"mpistrat.tensorflow was tested with TensorFlow {', '.join(TESTED)}, not with"
        f" {tf.__version__}: it uses private modules that may have changed",
    )

_modules = load(_NEEDED)
_cross = _modules["distribute.cross_device_ops"]
_cross_utils = _modules["distribute.cross_device_utils"]
_utils = _modules["distribute.distribute_utils"]
_inputs = _modules["distribute.input_util"]
_inputs_v1 = _modules["distribute.v1.input_lib"]


def _leave_unconverted(*packages: str) -> None:
    """Exempt this package from AutoGraph's conversion, like TensorFlow's own code."""
    config: Any = _modules["autograph.core.config"]
    # AutoGraph rewrites all that a traced function calls, the communicator's methods too.
    ours = map(config.DoNotConvert, packages)
    # The first rule that matches a module counts.
    config.CONVERSION_RULES = (*ours, *config.CONVERSION_RULES)


_leave_unconverted(
    *("mpistrat.tensorflow", "mpistrat.collectives", "mpistrat.cluster"),
    *("mpistrat.tables", "mpistrat.system"),
)

MirroredExtended: Any = _modules["distribute.mirrored_strategy"].MirroredExtended
CentralExtended: Any = _modules[
    "distribute.parameter_server_strategy"
].ParameterServerStrategyExtended
Mirrored: Any = _modules["distribute.values"].Mirrored
RemoteValueImpl: Any = _modules["distribute.coordinator.values"].RemoteValueImpl
SyncOnReadVariable: Any = _modules["distribute.values"].SyncOnReadVariable
DatasetIterator: Any = _inputs_v1.DatasetIterator
InputFunctionIterator: Any = _inputs_v1.InputFunctionIterator


def placed(value: Any, destinations: Any) -> Any:
    """Return `value` on one device, or a copy on each of several."""
    return _cross.simple_broadcast(value, destinations)


def on_host(value: Any, destinations: Any) -> bool:
    """Whether TensorFlow sums a value on the host, whatever its `CrossDeviceOps`."""
    # As AllReduceCrossDeviceOps.reduce_implementation decides (TensorFlow 2.21).
    if any("cpu" in device.lower() for device in _cross.get_devices_from(destinations)):
        return True
    return not _cross._devices_match(value, destinations)


def reduced_bare_value(reduce_op: Any, value: Any, destinations: Any, replicas: int) -> Any:
    """Reduce a value that is the same on all replicas."""
    return _cross.reduce_non_distributed_value(reduce_op, value, destinations, replicas)


def summed(values: Any) -> Any:
    """Return the sum of tensors, or of IndexedSlices."""
    return _cross_utils.aggregate_tensors_or_indexed_slices(values, tf.add_n)


def divided(value: Any, number: int) -> Any:
    """Return a tensor, or IndexedSlices, divided by a number."""
    return _cross_utils.divide_by_n_tensors_or_indexed_slices(value, number)


def always_wrapped(values: list[Any]) -> Any:
    """Return a PerReplica of one value for each local replica, also for a single replica."""
    return _utils.regroup(values, always_wrap=True)


def distributed_variable(strategy: Any, make_parts: Any, **kwargs: Any) -> Any:
    """Return a distributed variable, of the class for its synchronization, of given parts."""
    classes, policies = _utils.VARIABLE_CLASS_MAPPING, _utils.VARIABLE_POLICY_MAPPING
    return _utils.create_mirrored_variable(strategy, make_parts, classes, policies, **kwargs)


def reads_across_replicas(strategy: Any) -> bool:
    """Whether reading a variable of `strategy` now combines all replicas' values."""
    # The conditions of SyncOnReadVariable.value, which TensorFlow has in no function of its own.
    util = _modules["distribute.values_util"]
    if util.is_saving_non_distributed():
        return False
    with _modules["distribute.distribute_lib"].enter_or_assert_strategy(strategy):
        is_update = util.in_replica_update_context()
        return tf.distribute.in_cross_replica_context() and not is_update


def of_replica(local: int, values: Any) -> Any:
    """Return a nest in which one replica's component replaces each distributed value."""
    return _utils.select_replica(local, values)


def is_mirrored(value: Any) -> bool:
    """Whether a value is the same on all replicas by construction."""
    return bool(_utils.is_mirrored(value)) or isinstance(value, Mirrored)


def is_strategy(value: Any) -> bool:
    """Whether a value is a strategy, of TensorFlow's second version or of its first."""
    return isinstance(value, _modules["distribute.distribute_lib"].StrategyBase)


def is_mirrored_strategy(strategy: Any) -> bool:
    """Whether a strategy mirrors variables on the devices of one process."""
    # TensorFlow's machinery of several workers derives from that of one process.
    several = _modules["distribute.collective_all_reduce_strategy"].CollectiveAllReduceExtended
    extended = strategy.extended
    return isinstance(extended, MirroredExtended) and not isinstance(extended, several)


def chosen_operations(mirrored: Any) -> Any:
    """Return the CrossDeviceOps that a mirrored strategy was given; None if it was given none."""
    # Both attributes are the same object where the program has chosen none.
    found = mirrored.extended._cross_device_ops
    return None if found is mirrored.extended._collective_ops else found


def is_one_resource(value: Any) -> bool:
    """Whether a value is a variable on one device, such as a parameter server's."""
    plain = _modules["ops.resource_variable_ops"].BaseResourceVariable
    return isinstance(value, (plain, _modules["distribute.ps_values"].CachingVariable))


def distributed_dataset(*args: Any, **kwargs: Any) -> Any:
    """Return a DistributedDataset."""
    return _inputs.get_distributed_dataset(*args, **kwargs)


def datasets_from_function(*args: Any, **kwargs: Any) -> Any:
    """Return a DistributedDataset of the datasets that a function makes for each worker."""
    return _inputs.get_distributed_datasets_from_function(*args, **kwargs)


def checkpointed_value(value: Any) -> Any:
    """Return a checkpoint's value for a variable that is being made; else `value`."""
    kind = _modules["trackable.base"].CheckpointInitialValue
    return value.wrapped_value if isinstance(value, kind) else value


def wrap_savers(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap the functions that write checkpoints to a prefix and SavedModels to a folder."""
    saver = _modules["checkpoint.functional_saver"].MultiDeviceSaver
    saver.save = wrap(saver.save)
    saved_model: Any = _modules["saved_model.save"]
    saved_model.save_and_return_nodes = wrap(saved_model.save_and_return_nodes)


def is_default_strategy(strategy: Any) -> bool:
    """Whether it is the one of programs that make none. **Local.**"""
    return strategy is _modules["distribute.distribute_lib"]._get_default_strategy()


def replace_deletion(delete: Callable[[str], None]) -> None:
    """Replace the function by which managers of checkpoints delete all files of a pattern."""
    management: Any = _modules["checkpoint.checkpoint_management"]
    management._delete_file_if_exists = delete


def wrap_save_counters(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap the function that makes the save counters of checkpoints."""
    module = _modules["checkpoint.checkpoint"]
    for kind in (module.Checkpoint, module.CheckpointV1):
        kind._maybe_create_save_counter = wrap(kind._maybe_create_save_counter)


def all_functions_ended(coordinator: Any, timeout_s: float) -> bool:
    """Wait for the scheduled functions; return whether all have ended, or raise their error."""
    return bool(coordinator._cluster.closure_queue.wait(timeout_s))


def is_available(remote_value: Any, timeout_s: float) -> bool:
    """Wait for the result of a function that was scheduled; return whether it is there."""
    return bool(remote_value._status_available_event.wait(timeout_s))


def stop_coordinator(coordinator: Any) -> None:
    """End the threads of a coordinator."""
    coordinator._cluster.stop()
