"""TensorFlow's private modules for one driving rank; see `api`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.tensorflow.private.api import load

__all__ = ["number", "number_of", "retrace_for_each", "wrap_writers"]

_FUNCTIONS = "eager.polymorphic_function.function_context"
_modules = load(
    {
        "checkpoint.checkpoint": ("Checkpoint",),
        "checkpoint.checkpoint_management": (
            "_delete_file_if_exists",
            "update_checkpoint_state_internal",
        ),
        _FUNCTIONS: ("EagerContext", "make_function_context"),
        "saved_model.save": ("save_and_return_nodes",),
    }
)

_Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap_writers(checkpoint: _Wrap, in_threads: _Wrap, saved_model: _Wrap, beside: _Wrap) -> None:
    """Wrap the functions that save objects to files.

    Parameters
    ----------
    checkpoint, in_threads
        For the methods of ``tf.train.Checkpoint`` that write one, and that let a thread do so.
    saved_model
        For the function that writes a SavedModel.
    beside
        For the functions that write and delete what is beside checkpoints.
    """
    kind: Any = _modules["checkpoint.checkpoint"].Checkpoint
    kind._write, kind._async_checkpointer = (
        checkpoint(kind._write),
        in_threads(kind._async_checkpointer),
    )
    saving: Any = _modules["saved_model.save"]
    saving.save_and_return_nodes = saved_model(saving.save_and_return_nodes)
    management: Any = _modules["checkpoint.checkpoint_management"]
    for name in ("update_checkpoint_state_internal", "_delete_file_if_exists"):
        setattr(management, name, beside(getattr(management, name)))


def retrace_for_each(mark: Callable[[], Any]) -> None:
    """Trace functions separately for each value of `mark`; None stands for no value."""
    module: Any = _modules[_FUNCTIONS]
    make = module.make_function_context

    def marked(*args: Any, **kwargs: Any) -> Any:
        found, value = make(*args, **kwargs), mark()
        if value is None:
            return found
        # The fields are fixed. Of those in TensorFlow's key of a traced function this one takes
        # any hashable value.
        inner = found.context
        marked_inner = inner._replace(xla_context_id=(inner.xla_context_id, value))
        return found._replace(context=marked_inner)

    module.make_function_context = marked


def number_of(checkpoint: Any) -> int | None:
    """Return the save counter of a numbered checkpoint, None if it has none. **Local.**"""
    counter = getattr(checkpoint, "_save_counter", None)  # its property would make one
    return None if counter is None else int(counter.numpy())


def number(checkpoint: Any, count: int | None) -> None:
    """Set a checkpoint's save counter to `count`, if that is not None. **Local.**"""
    if count is not None:
        checkpoint.save_counter.assign(count)
