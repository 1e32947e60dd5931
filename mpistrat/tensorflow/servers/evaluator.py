"""`SidecarEvaluator` for TensorFlow: evaluate what the chief saves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mpistrat.checkpoint.evaluation_loop import Evaluations
from mpistrat.errors import ArgumentTypeError

if TYPE_CHECKING:
    from mpistrat.tensorflow.servers.server import Server

__all__ = ["SidecarEvaluator"]


class SidecarEvaluator:
    """Evaluates each new checkpoint of a folder while others train.

    Keras's own class of this name went with Keras 3, and did not know when the training ends.

    Parameters
    ----------
    server
        A `Server` on a rank whose ``resolver.task_type`` is ``'evaluator'``.
    checkpoint
        A ``tf.train.Checkpoint`` of this process's objects, made outside of any strategy, under
        the names that the chief's has; it is restored before each evaluation. What else the chief
        saves is left out.
    checkpoint_dir
        The folder to which the chief saves, with ``tf.train.CheckpointManager``.
    evaluate
        Called with a checkpoint's path once it is restored; returns any result, such as
        ``model.evaluate(..., return_dict=True)``.
    max_evaluations
        Evaluate no more than so many checkpoints; None for no limit.

    Raises
    ------
    UsageError
        The server is no evaluator's, or `max_evaluations` is not above 0.

    References
    ----------
    tf.keras.utils.SidecarEvaluator, of Keras 2.
    """

    def __init__(
        self,
        server: Server,
        checkpoint: Any,
        checkpoint_dir: str | os.PathLike[str],
        evaluate: Callable[[str], Any],
        max_evaluations: int | None = None,
    ) -> None:
        if not isinstance(checkpoint, tf.train.Checkpoint):
            raise ArgumentTypeError(
                f"SidecarEvaluator of a {type(checkpoint).__name__}; expected a"
                " tf.train.Checkpoint"
            )
        folder = os.fspath(checkpoint_dir)
        self._evaluations = Evaluations(
            lambda: tf.train.latest_checkpoint(folder),
            lambda path: checkpoint.read(path).assert_existing_objects_matched().expect_partial(),
            (tf.errors.OpError, ValueError),
            evaluate,
            max_evaluations,
        )
        self._tasks = server.evaluator()

    @property
    def results(self) -> list[tuple[str, Any]]:
        """The path and the result of each evaluation so far."""
        return self._evaluations.results

    def start(self) -> list[tuple[str, Any]]:
        """Evaluate until the chief has closed its strategy, the last checkpoint too.

        What is saved while an evaluation runs is skipped but for the latest. Once that is over,
        another call evaluates what was saved since.

        Returns
        -------
        list of (str, object)
            The path and the result of each evaluation, also in :attr:`results`.

        Raises
        ------
        PeerLostError
            The chief, or another rank, failed or died. It is noticed between two evaluations.
        ValueError, AssertionError
            TensorFlow's: a checkpoint does not fit the objects.
        """
        return self._evaluations.start(self._evaluate_all)

    def _evaluate_all(self) -> None:
        try:
            self._evaluations.follow(self._wait)
        except BaseException as error:
            self._tasks.communicator.end(error)  # the others end, too, with this reason
            raise
        self._tasks.wait_for_chief()

    def _wait(self, seconds: float) -> bool:
        is_over = self._tasks.is_over()
        time.sleep(0.0 if is_over else seconds)
        return is_over
