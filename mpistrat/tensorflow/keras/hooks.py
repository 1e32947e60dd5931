"""Hook Keras 3: wrap the functions that take one process's results for those of all replicas.

Outside of TensorFlow's own multi-worker strategies Keras knows of one process only. Each wrapper
here and in the other files of this folder takes Keras's function and returns one that does what
is right over ranks; under any other strategy it calls Keras's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from mpistrat.system.log import get_logger, warn_once
from mpistrat.tensorflow.graph.initial_values import made_alone
from mpistrat.tensorflow.keras import (
    arrays,
    batch_order,
    generators,
    gradients,
    layer_statistics,
    logs,
    losses,
    output,
    saving,
)
from mpistrat.tensorflow.keras.assignments import assigned
from mpistrat.tensorflow.keras.building import built_from_own_batch
from mpistrat.tensorflow.keras.compile_scope import compiled_in_scope
from mpistrat.tensorflow.keras.data_order import (
    compared_at_end,
    compared_now_and_then,
    in_data_order,
)
from mpistrat.tensorflow.keras.names import variable_names
from mpistrat.tensorflow.keras.on_workers import hooks as worker_hooks
from mpistrat.tensorflow.keras.on_workers import optimizers as worker_optimizers
from mpistrat.tensorflow.keras.on_workers.counters import made_atomic
from mpistrat.tensorflow.keras.preemption import resumed_epoch
from mpistrat.tensorflow.shared_files import written_whole
from mpistrat.tensorflow.wrapped_strategy.one_driver import files as driven_files
from mpistrat.tensorflow.wrapped_strategy.one_driver import models as driven_models

__all__ = ["install"]

_LOG = get_logger(__name__)
_TRAINER = "keras.src.backend.tensorflow.trainer"


def install() -> None:
    """Wrap Keras's functions if Keras is loaded. Idempotent. **Local.**

    Where a function is wrapped twice, the wrapper that was put last runs first.
    """
    trainer = sys.modules.get(_TRAINER)
    # Called by each scope and run: Keras may be imported after the strategy was made.
    if trainer is None or hasattr(trainer, "_mpistrat"):
        return
    trainer._mpistrat = True  # type: ignore[attr-defined]
    _run_by_driver(trainer.TensorFlowTrainer)
    callbacks = sys.modules["keras.src.callbacks"]
    _average_losses()
    _reduce_over_ranks(trainer)
    base = sys.modules["keras.src.trainers.trainer"].Trainer
    _replace(base, "compile", compiled_in_scope)
    _replace(base, "_get_metrics_result_or_logs", resumed_epoch.metrics_of_resumed)
    _replace(trainer.TensorFlowTrainer, "_maybe_symbolic_build", built_from_own_batch)
    _take_data(trainer)
    # Parameter servers: workers run the steps, and read the data.
    _replace(trainer.TensorFlowTrainer, "_make_function", worker_hooks.steps_on_workers)
    _replace(
        trainer.TensorFlowTrainer, "make_predict_function", worker_hooks.predictions_on_workers
    )
    _replace(trainer.TFEpochIterator, "__init__", worker_hooks.data_given)
    _replace(trainer.TFEpochIterator, "_get_iterator", worker_hooks.worker_data)
    _replace(trainer.TFEpochIterator, "tf_sync", worker_hooks.settled)
    _replace(trainer, "potentially_ragged_concat", worker_hooks.all_predictions)
    # Callbacks that save: once, by rank 0.
    _replace(callbacks.ModelCheckpoint, "_save_model", saving.by_chief)
    _replace(callbacks.BackupAndRestore, "_save_model", saving.by_chief)
    _replace(callbacks.BackupAndRestore, "on_train_end", saving.by_chief)
    # Gradients: checked and clipped after their sum over the replicas.
    scaler = sys.modules["keras.src.optimizers.loss_scale_optimizer"].LossScaleOptimizer
    _replace(scaler, "check_finite", gradients.finite_on_all)
    optimizer = sys.modules["keras.src.backend.tensorflow.optimizer"].TFOptimizer
    _replace(optimizer, "_clip_gradients", gradients.clip_sums)
    _replace(optimizer, "_all_reduce_sum_gradients", gradients.sum_once)
    _replace(optimizer, "_backend_apply_gradients", gradients.noted_variables)
    _replace(optimizer, "_backend_apply_gradients", worker_optimizers.in_replica)
    _replace(optimizer, "add_variable_from_reference", worker_optimizers.beside_variable)
    _replace(optimizer, "add_variable_from_reference", variable_names.of_reference)
    # Files: all ranks or one may save; a file appears at its path whole, and once.
    saving_lib = sys.modules["keras.src.saving.saving_lib"]
    _replace(saving_lib, "get_attr_skipset", made_alone)
    _replace(saving_lib, "save_model", written_whole)
    _replace(saving_lib, "save_weights_only", saving.weights_written_whole)
    _watch_variables()
    legacy = sys.modules["keras.src.legacy.saving.legacy_h5_format"]
    _replace(legacy, "save_model_to_hdf5", partial(written_whole, makes_folders=True))
    # After `written_whole`, so as to run before it: ranks that wait write nothing at all.
    _written_by_driver(saving_lib, legacy)
    _printed_once(trainer, callbacks)


def _average_losses() -> None:
    # Means over the rows of all replicas.
    loss = sys.modules["keras.src.losses.loss"]
    _replace(loss, "scale_loss_for_distribution", losses.scaled_by_share)
    _replace(loss, "unscale_loss_for_distribution", losses.unscaled)
    _replace(loss.Loss, "__call__", losses.named)
    _replace(loss, "reduce_values", losses.reduced)
    compiled = sys.modules["keras.src.trainers.compile_utils"]
    _replace(compiled.CompileLoss, "call", losses.loss_of_outputs)


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
    _replace(trainer.TFEpochIterator, "_get_iterator", generators.noted_passes)
    # Before `resumed`, so as to run within it: steps that it leaves out are read, too.
    _replace(trainer.TFEpochIterator, "_enumerate_iterator", generators.noted_steps)
    # Before `compared_now_and_then`, so as to run within it: what it leaves out is compared, too.
    _replace(trainer.TFEpochIterator, "_enumerate_iterator", resumed_epoch.resumed)
    _replace(trainer.TFEpochIterator, "_enumerate_iterator", compared_now_and_then)
    _replace(trainer.TFEpochIterator, "catch_stop_iteration", compared_at_end)
    _replace(trainer.TensorFlowTrainer, "predict", in_data_order)
    adapters = sys.modules["keras.src.trainers.data_adapters.array_data_adapter"]
    _replace(adapters.ArrayDataAdapter, "get_tf_dataset", arrays.own_rows)
    given = sys.modules["keras.src.trainers.data_adapters.generator_data_adapter"]
    _replace(given.GeneratorDataAdapter, "__init__", generators.read_once)
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
    _replace(variable, "_initialize", variable_names.created)
    _replace(sys.modules["keras.src.utils.naming"], "uniquify", variable_names.counted)
    _replace(variable, "_direct_assign", assigned)
    for name in ("assign_add", "assign_sub"):
        _replace(variable, name, made_atomic(name, is_stateless))


def _reduce_over_ranks(trainer: Any) -> None:
    _replace(trainer, "reduce_per_replica", logs.reduced_over_ranks)
    _replace(trainer, "_collective_all_reduce_multi_worker", logs.not_for_ranks)


def _run_by_driver(trainer: Any) -> None:
    for name in (*driven_models.TRAINING, *driven_models.USING):
        _replace(trainer, name, driven_models.by_driver)
    base = sys.modules["keras.src.trainers.trainer"].Trainer
    _replace(base, "_symbolic_build", driven_models.noting_batch)


def _written_by_driver(saving_lib: Any, legacy: Any) -> None:
    model = sys.modules["keras.src.models.model"].Model
    writers = {saving_lib: ("save_model", "save_weights_only"), legacy: ("save_model_to_hdf5",)}
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
    # wraps() sets attributes, which a property refuses.
    setattr(owner, name, wraps(original)(wrapped) if is_function else wrapped)
