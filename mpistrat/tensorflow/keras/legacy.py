"""Hooks for legacy Keras (tf_keras, ``TF_USE_LEGACY_KERAS=1``), as `hooks` has for Keras 3.

Without them ``predict`` gives the rows of this rank, a shorter last batch counts as a whole one,
and files that all ranks save at once are locked by one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.keras.logs import all_rows, means
from mpistrat.tensorflow.keras.losses import scaled_by_share
from mpistrat.tensorflow.keras.names import legacy_variable_names
from mpistrat.tensorflow.own_strategies import OnRanks, is_over_ranks
from mpistrat.tensorflow.shared_files import written_whole

__all__ = ["install"]

_PACKAGE = "tf_keras.src."
_TRAINING = _PACKAGE + "engine.training"
_HDF5 = (".h5", ".hdf5", ".keras")


def install() -> None:
    """Wrap legacy Keras's functions if it is loaded. Idempotent. **Local.**"""
    training: Any = sys.modules.get(_TRAINING)
    if training is None or hasattr(training, "_mpistrat"):
        return
    training._mpistrat = True
    to_hdf5 = partial(written_whole, makes_folders=True)
    places: dict[str, dict[str, Callable[[Any], Any]]] = {
        "engine.training": {"reduce_per_replica": _reduce_per_replica},
        "utils.losses_utils": {"scale_loss_for_distribution": scaled_by_share},
        "saving.legacy.hdf5_format": {"save_model_to_hdf5": to_hdf5},
        "saving.legacy.save": {"save_weights": _hdf5_written_whole},
        "saving.saving_lib": {"save_model": written_whole, "save_weights_only": written_whole},
    }
    for module, wrappers in places.items():
        for name, wrap in wrappers.items():
            _replace(sys.modules[_PACKAGE + module], name, wrap)
    _replace(sys.modules[_PACKAGE + "callbacks"].BackupAndRestore, "__init__", _on_ranks)
    _name_variables()


def _name_variables() -> None:
    backend = sys.modules[_PACKAGE + "backend"]
    legacy_variable_names.note_all(backend.PER_GRAPH_OBJECT_NAME_UIDS)
    _replace(backend, "unique_object_name", legacy_variable_names.counted)
    base = sys.modules[_PACKAGE + "optimizers.optimizer"]._BaseOptimizer
    _replace(base, "add_variable_from_reference", legacy_variable_names.of_reference)
    older = sys.modules[_PACKAGE + "optimizers.legacy.optimizer_v2"].OptimizerV2
    _replace(older, "add_slot", legacy_variable_names.of_slot)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(wrap(original)))


def _reduce_per_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return predictions of all ranks, in order; and the means of what training logs.

    In one process logs of a ``train_step`` that differ by replica are summed. Here they are the
    mean of the ranks' sums, so logs that are equal on all ranks, such as metrics, are kept.
    """

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if not is_over_ranks(strategy):
            return original(values, strategy, reduction)
        if reduction == "concat":
            return tf.nest.map_structure(partial(all_rows, strategy), values)
        return means(original(values, strategy, reduction), strategy)

    return reduce_per_replica


def _hdf5_written_whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave checkpoints to TensorFlow, whose own function writes them whole."""
    whole = written_whole(original)

    def save_weights(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        is_hdf5 = str(filepath).endswith(_HDF5) or "h5" in (*args, *kwargs.values())
        return (whole if is_hdf5 else original)(model, filepath, *args, **kwargs)

    return save_weights


def _on_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let a BackupAndRestore take strategies over ranks: it saves on all, and keeps rank 0's."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._supported_strategies = (*self._supported_strategies, OnRanks)

    return init
