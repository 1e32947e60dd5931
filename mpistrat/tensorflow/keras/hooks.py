"""Hook Keras 3: wrap the functions that take one process's results for those of all replicas.

Outside of TensorFlow's own multi-worker strategies Keras knows of one process only. Each wrapper
here and in the other files of this folder takes Keras's function and returns one that does what
is right over ranks; under any other strategy it calls Keras's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.backed.one_driver import files as driven_files
from mpistrat.tensorflow.backed.one_driver import models as driven_models
from mpistrat.tensorflow.graph.initial_values import made_alone
from mpistrat.tensorflow.keras import (
    arrays,
    batch_order,
    gradients,
    layer_statistics,
    output,
    row_weights,
)
from mpistrat.tensorflow.keras.assignments import assigned
from mpistrat.tensorflow.keras.building import built_from_own_batch
from mpistrat.tensorflow.keras.compile_scope import compiled_in_scope
from mpistrat.tensorflow.keras.counters import made_atomic
from mpistrat.tensorflow.keras.epochs import compared_at_end, compared_now_and_then, in_data_order
from mpistrat.tensorflow.keras.worker_batches import WorkerData
from mpistrat.tensorflow.keras.worker_steps import Prediction, Predictions, Steps
from mpistrat.tensorflow.kinds import has_servers, is_ours, is_over_ranks, our_replica
from mpistrat.tensorflow.original import distribute
from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.shared_files import written_whole

__all__ = ["all_rows", "install", "means", "scaled_by_share"]

_LOG = get_logger(__name__)
_TRAINER = "keras.src.backend.tensorflow.trainer"
_counts_steps: ContextVar[bool] = ContextVar("counts_steps", default=False)


def install() -> None:
    """Wrap Keras's functions if Keras is loaded. Idempotent. **Local.**

    Where a function is wrapped twice, the wrapper that was put last runs first.
    """
    trainer = sys.modules.get(_TRAINER)
    if trainer is None or hasattr(trainer, "_mpistrat"):
        return
    trainer._mpistrat = True  # type: ignore[attr-defined]
    _run_by_driver(trainer.TensorFlowTrainer)
    callbacks = sys.modules["keras.src.callbacks"]
    # Losses and logs: means over the rows of all replicas.
    loss = sys.modules["keras.src.losses.loss"]
    _replace(loss, "scale_loss_for_distribution", scaled_by_share)
    _replace(loss, "unscale_loss_for_distribution", _unscale)
    compiled = sys.modules["keras.src.trainers.compile_utils"]
    _replace(compiled.CompileLoss, "call", _loss_of_outputs)
    _reduce_over_ranks(trainer)
    _replace(sys.modules["keras.src.trainers.trainer"].Trainer, "compile", compiled_in_scope)
    _replace(trainer.TensorFlowTrainer, "_maybe_symbolic_build", built_from_own_batch)
    _take_data(trainer)
    # Parameter servers: workers run the steps, and read the data.
    _replace(trainer.TensorFlowTrainer, "_make_function", _steps_on_workers)
    _replace(trainer.TensorFlowTrainer, "make_predict_function", _predictions_on_workers)
    _replace(trainer.TFEpochIterator, "_get_iterator", _worker_data)
    _replace(trainer.TFEpochIterator, "tf_sync", _settled)
    _replace(trainer, "potentially_ragged_concat", _all_predictions)
    # Callbacks that save: once, by rank 0.
    _replace(callbacks.ModelCheckpoint, "_save_model", _by_chief)
    _replace(callbacks.BackupAndRestore, "_save_model", _by_chief)
    _replace(callbacks.BackupAndRestore, "on_train_end", _by_chief)
    # Gradients: checked and clipped after their sum over the replicas.
    scaler = sys.modules["keras.src.optimizers.loss_scale_optimizer"].LossScaleOptimizer
    _replace(scaler, "check_finite", gradients.finite_on_all)
    optimizer = sys.modules["keras.src.backend.tensorflow.optimizer"].TFOptimizer
    _replace(optimizer, "_clip_gradients", gradients.clip_sums)
    _replace(optimizer, "_all_reduce_sum_gradients", gradients.sum_once)
    # Files: all ranks or one may save; a file appears at its path whole, and once.
    saving = sys.modules["keras.src.saving.saving_lib"]
    _replace(saving, "get_attr_skipset", made_alone)
    _replace(saving, "save_model", written_whole)
    _replace(saving, "save_weights_only", _weights_written_whole)
    _watch_variables()
    legacy = sys.modules["keras.src.legacy.saving.legacy_h5_format"]
    _replace(legacy, "save_model_to_hdf5", partial(written_whole, makes_folders=True))
    _written_by_driver(saving, legacy)
    _printed_once(trainer, callbacks)


def _printed_once(trainer: Any, callbacks: Any) -> None:
    lists = sys.modules["keras.src.callbacks.callback_list"]
    _replace(lists.CallbackList, "__init__", output.quiet_bars)
    _replace(trainer.TensorFlowTrainer, "fit", output.end_together)
    _replace(callbacks.CSVLogger, "on_train_begin", output.to_nowhere)
    for name in ("_configure_embeddings", "_log_embeddings", "_start_profiler"):
        _replace(callbacks.TensorBoard, name, output.unless_other)
    for name in ("_train_writer", "_val_writer"):
        _replace(callbacks.TensorBoard, name, output.writes_nothing)


def _take_data(trainer: Any) -> None:
    _replace(trainer.TFEpochIterator, "__init__", arrays.for_strategy)
    _replace(trainer.TFEpochIterator, "_enumerate_iterator", compared_now_and_then)
    _replace(trainer.TFEpochIterator, "catch_stop_iteration", compared_at_end)
    _replace(trainer.TensorFlowTrainer, "predict", in_data_order)
    adapters = sys.modules["keras.src.trainers.data_adapters.array_data_adapter"]
    _replace(adapters.ArrayDataAdapter, "get_tf_dataset", arrays.own_rows)
    batches = sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"]
    batch_order.install()
    _replace(batches.PyDatasetAdapter, "_finite_generator", batch_order.shuffled_alike)
    _replace(batches.OrderedEnqueuer, "_run", batch_order.shuffled_alike_ahead)


def _watch_variables() -> None:
    is_stateless = sys.modules["keras.src.backend.common.stateless_scope"].in_stateless_scope
    _replace(
        sys.modules["keras.src.layers.layer"].Layer, "add_weight", layer_statistics.made_by_layer
    )
    normalization = sys.modules["keras.src.layers.normalization.batch_normalization"]
    _replace(normalization.BatchNormalization, "_moments", layer_statistics.moments_of_rows)
    variable = sys.modules["keras.src.backend.tensorflow.core"].Variable
    _replace(variable, "_initialize", layer_statistics.initialized)
    _replace(variable, "_direct_assign", assigned)
    for name in ("assign_add", "assign_sub"):
        _replace(variable, name, made_atomic(name, is_stateless))


def _reduce_over_ranks(trainer: Any) -> None:
    _replace(trainer, "reduce_per_replica", _reduce_per_replica)
    _replace(trainer, "_collective_all_reduce_multi_worker", _of_tensorflow)


def _run_by_driver(trainer: Any) -> None:
    for name in (*driven_models.TRAINING, *driven_models.USING):
        _replace(trainer, name, driven_models.by_driver)
    base = sys.modules["keras.src.trainers.trainer"].Trainer
    _replace(base, "_symbolic_build", driven_models.noting_batch)


def _written_by_driver(saving: Any, legacy: Any) -> None:
    model = sys.modules["keras.src.models.model"].Model
    writers = {saving: ("save_model", "save_weights_only"), legacy: ("save_model_to_hdf5",)}
    for owner, names in {model: ("save", "save_weights", "export"), **writers}.items():
        for name in names:
            _replace(owner, name, driven_files.model_by_driver)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Wrap a function of Keras; say so if there is none."""
    original = getattr(owner, name, None)
    if original is None:
        warn_once(
            _LOG,
            f"Keras {name}",
            f"this Keras has no {owner.__name__}.{name}: results of predict and files of"
            " callbacks may be wrong on several ranks; use Keras 3.15",
        )
        return
    wrapped = wrap(original)
    is_function = not isinstance(original, property)
    setattr(owner, name, wraps(original)(wrapped) if is_function else wrapped)


def _reduce_per_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return predictions of all ranks, in order; and the means of what training logs.

    All ranks have to see the same logs: a callback that stops one rank would leave the others
    waiting.
    """

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction == "auto" and isinstance(strategy, distribute.TPUStrategy):
            reduction = "first"  # Keras would ask tf.distribute, which a program may have replaced
        if not is_over_ranks(strategy):
            return original(values, strategy, reduction)
        if reduction == "concat":
            return tf.nest.map_structure(partial(all_rows, strategy), values)
        local = original(values, strategy, reduction)
        return means(local, strategy) if reduction in ("auto", "mean") else local

    return reduce_per_replica


def _of_tensorflow(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the test for TensorFlow's multi-worker strategies, which goes by a class's name.

    A strategy over ranks may have that name, and must not be taken for one.
    """
    return lambda strategy: not is_ours(strategy) and original(strategy)


def all_rows(strategy: Any, value: Any) -> tf.Tensor:
    """Gather predictions in the data's order: rows of the ranks' first replicas come first."""
    local = strategy.experimental_local_results(value)
    return tf.concat([strategy.extended.bridge.all_gather(one) for one in local], axis=0)


def scaled_by_share(original: Callable[..., Any]) -> Callable[..., Any]:
    """Weight a replica's mean by its share of the rows."""

    def scale(value: Any) -> Any:
        share = _share()
        return original(value) if share is None else value * tf.cast(share, value.dtype)

    return scale


def _unscale(original: Callable[..., Any]) -> Callable[..., Any]:
    def unscale(value: Any) -> Any:
        share = _share()
        if share is None or _counts_steps.get():
            return original(value)
        if tuple(value.shape) == (0,):  # eagerly, the loss of no rows; its mean is no number
            value = tf.reduce_sum(value)
        return tf.math.divide_no_nan(value, tf.cast(share, value.dtype))

    return unscale


def _loss_of_outputs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let an output's loss of a step be the mean of its rows.

    In a graph Keras knows no number of rows there: each replica counts once in a step, with what
    it adds to the mean times the number of replicas. Eagerly it counts rows, as elsewhere.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _counts_steps.set(not tf.executing_eagerly())
        try:
            return original(self, *args, **kwargs)
        finally:
            _counts_steps.reset(token)

    return call


def _share() -> tf.Tensor | None:
    """Return this replica's share, if it is one of ours."""
    return row_weights.current() if our_replica() is not None else None


def means(values: Any, strategy: Any) -> Any:
    """Return the means over the ranks of what training logs. **Collective.**"""
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    floats = [i for i, value in enumerate(flat) if value.dtype.is_floating]
    found = strategy.extended.bridge.all_reduce([flat[i] for i in floats], "mean")
    for index, mean in zip(floats, found, strict=True):
        flat[index] = mean
    return tf.nest.pack_sequence_as(values, flat)


def _by_chief(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let only rank 0 run a callback's method; the others wait for it, and fail if it fails."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.model.distribute_strategy
        if not is_over_ranks(strategy):
            return original(self, *args, **kwargs)
        result = None
        with strategy.communicator.checking():
            if strategy.is_chief:
                result = original(self, *args, **kwargs)
        # By `best` a ModelCheckpoint decides whether it saves: the ranks must decide alike.
        told = strategy.communicator.bcast_object(getattr(self, "best", None))
        if told is not None:
            self.best = told
        return result

    return method


def _weights_written_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Write weights whole, unless Keras splits them into files that name each other."""
    whole = written_whole(original)

    def save(model: Any, path: Any, max_shard_size: Any = None, **kwargs: Any) -> Any:
        write = whole if max_shard_size is None else original
        return write(model, path, max_shard_size, **kwargs)

    return save


# ------------------------------------------------------------------------- parameter servers


def _steps_on_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Send the steps of fit and evaluate to the workers."""

    def make(self: Any, step_function: Callable[..., Any]) -> Any:
        strategy = self.distribute_strategy
        if not has_servers(strategy):
            return original(self, step_function)
        _check_graphs(self)
        if step_function == self.train_step:
            _check_whole(self)
        step = self._autoconvert_optionals(lambda data: strategy.run(step_function, (data,)))
        return Steps(strategy.coordinator, step, lambda: self.steps_per_execution)

    return make


def _predictions_on_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(self: Any, force: bool = False) -> Any:
        strategy = self.distribute_strategy
        if not has_servers(strategy) or (self.predict_function is not None and not force):
            return original(self, force)
        _check_graphs(self)
        predict = self._autoconvert_optionals(
            lambda data: strategy.run(self.predict_step, (data,))
        )
        self.predict_function = Predictions(strategy.coordinator, predict)
        return None

    return make


def _check_graphs(model: Any) -> None:
    """Raise if what the model does cannot be sent to workers."""
    if model.run_eagerly:
        raise UsageError(
            "run_eagerly=True under ParameterServerStrategy: workers only run graphs; leave it out"
        )
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas > 1:
        raise UsageError(
            f"{replicas} GPUs on each worker: fit and evaluate use one; start a rank for each GPU,"
            " or write a loop with coordinator.schedule"
        )


def _check_whole(model: Any) -> None:
    """Raise if the model has weights in parts: TensorFlow has no gradients of these."""
    parts = [one.path for one in model.trainable_weights if hasattr(one._value, "variables")]
    if parts:
        raise UsageError(
            f"variable_partitioner divides {', '.join(parts)}; fit trains whole weights only:"
            " leave the partitioner out, or write a loop with gradients of .variables"
        )


def _worker_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let each worker read the batches of its own steps."""

    def get_iterator(self: Any) -> Any:
        strategy = self._distribute_strategy
        if not has_servers(strategy):
            return original(self)
        if not hasattr(self, "_mpistrat_data"):
            dataset = private_data.original_dataset(self._distributed_dataset)
            length = self.data_adapter.num_batches
            self._mpistrat_data = WorkerData(strategy.coordinator, dataset, length)
        return self._mpistrat_data

    return get_iterator


def _settled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wait for the workers' steps where Keras waits for the steps of an epoch."""

    def tf_sync(self: Any) -> None:
        original(self)
        if hasattr(self, "_mpistrat_data"):
            self._mpistrat_data.settle()

    return tf_sync


def _all_predictions(original: Callable[..., Any]) -> Callable[..., Any]:
    """Concatenate the workers' predictions, output by output."""

    def concat(batches: list[Any]) -> Any:
        if not isinstance(batches[0], Prediction):
            return original(batches)
        parts = [part for one in batches for part in one.parts()]
        return tf.nest.map_structure(lambda *rows: original(list(rows)), *parts)

    return concat
