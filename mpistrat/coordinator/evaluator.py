"""`SidecarEvaluator`: evaluate the checkpoints that the chief writes while it trains."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpistrat.checkpoint.checkpoint import Checkpoint
from mpistrat.checkpoint.evaluation_loop import Evaluations
from mpistrat.checkpoint.files.pointer import latest_checkpoint
from mpistrat.coordinator.messages import decoded
from mpistrat.errors import ArgumentTypeError, CheckpointError
from mpistrat.ps.messages import Fail
from mpistrat.ps.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from mpistrat.coordinator.server import Server

__all__ = ["EvaluatorRole", "SidecarEvaluator"]


class EvaluatorRole:
    """An evaluator as the job sees it: it hears from the chief when the job is over.

    Parameters
    ----------
    endpoint
        Of an evaluator.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._stream = endpoint.streams[endpoint.roster.chief]
        self._has_lost: bool | None = None
        self._poll = select.poll()
        self._poll.register(self._stream.fileno(), select.POLLIN)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the chief's program is done, but not for longer; tell whether it is.

        Raises
        ------
        PeerLostError
            The chief has ended, or said that it has failed.
        """
        if self._has_lost is None:
            self._poll.poll(None if timeout_s is None else timeout_s * 1e3)
            for message in map(decoded, self._stream.take()):
                if isinstance(message, Fail):
                    raise self._stream.failed(message.reason)
                self._has_lost = message.has_lost
        return self._has_lost is not None

    def serve(self) -> bool:
        """Wait until the job is over, for as long as the chief lives; tell if it lost a member."""
        while not self.wait(None):
            pass
        return bool(self._has_lost)


class SidecarEvaluator:
    """Evaluates each new checkpoint of a folder while others train.

    Parameters
    ----------
    server
        A `Server` on a rank whose ``resolver.task_type`` is ``'evaluator'``.
    checkpoint
        Is restored before each evaluation; made of variables of this process, outside of any
        strategy, under the names that the chief's has. What else the chief saves is left out.
    checkpoint_dir
        The folder to which the chief saves, with ``CheckpointManager`` or ``Checkpoint.save``.
    evaluate
        Called with a checkpoint's path once it is restored; returns any result.
    max_evaluations
        Evaluate no more than so many checkpoints; None for no limit.

    Raises
    ------
    UsageError
        The server is no evaluator's, or `max_evaluations` is not above 0.

    References
    ----------
    tf.keras.utils.SidecarEvaluator.
    """

    def __init__(
        self,
        server: Server,
        checkpoint: Checkpoint,
        checkpoint_dir: str | os.PathLike[str],
        evaluate: Callable[[str], Any],
        max_evaluations: int | None = None,
    ) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ArgumentTypeError(
                f"SidecarEvaluator of a {type(checkpoint).__name__}; expected a Checkpoint"
            )
        self._evaluations = Evaluations(
            lambda: latest_checkpoint(checkpoint_dir),
            lambda path: checkpoint.restore(path).assert_existing_objects_matched(),
            (CheckpointError, OSError),
            evaluate,
            max_evaluations,
        )
        self._server, self._chief = server, server.evaluator()

    @property
    def results(self) -> list[tuple[str, Any]]:
        """The path and the result of each evaluation so far."""
        return self._evaluations.results

    def start(self) -> list[tuple[str, Any]]:
        """Evaluate until the chief's program is done, the last checkpoint too.

        What is saved while an evaluation runs is skipped but for the latest. Once that is over,
        another call evaluates what was saved since. **Collective** with
        the chief's ``close()``, which waits for the evaluation of the last one.

        Returns
        -------
        list of (str, object)
            The path and the result of each evaluation, also in :attr:`results`.

        Raises
        ------
        PeerLostError
            The chief's program has ended with an error.
        CheckpointError
            A checkpoint is corrupt, or lacks one of the variables.
        """
        return self._evaluations.start(lambda: self._server.play(self._evaluate_all))

    def _evaluate_all(self) -> bool:
        self._evaluations.follow(self._chief.wait)
        # With max_evaluations the training may go on: an evaluator that leaves counts as lost.
        return self._chief.serve()
