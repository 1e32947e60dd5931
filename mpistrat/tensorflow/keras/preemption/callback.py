"""`PreemptionCallback`: stop `fit` on all ranks at one batch, saved, and go on there."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from mpistrat.checkpoint.checkpoint import Checkpoint
from mpistrat.checkpoint.manager import CheckpointManager
from mpistrat.cluster.launcher.launch_variables import expected_size
from mpistrat.collectives import Communicator
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.errors import UsageError
from mpistrat.preemption.handler import PreemptionHandler
from mpistrat.system import log
from mpistrat.tensorflow.keras import hooks
from mpistrat.tensorflow.keras.preemption.resumed_epoch import Resumption, resume_at
from mpistrat.tensorflow.keras.preemption.training_state import TrainingState, global_seed
from mpistrat.tensorflow.own_strategies import has_servers, is_ours

__all__ = ["PreemptionCallback"]

_LOG = log.get_logger(__name__)


class PreemptionCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Save a `fit` and end the program when a signal says so; go on at the same batch.

    A restarted program calls the same `fit` again. It goes on after the last batch that was saved,
    and ends with the same weights, bit for bit, as one that was never stopped.

    Parameters
    ----------
    directory
        For the checkpoints; one for each `fit` of a program, the same on all ranks.
    max_to_keep
        How many checkpoints stay.
    signals, save_every_steps, save_every_s, lead_s, exits
        As of `mpistrat.PreemptionHandler`; a step is a batch, or ``steps_per_execution`` of them.
        If it does not exit, `fit` returns early, and ``has_stopped`` tells so.

    Raises
    ------
    UsageError
        In `fit`: the strategy has parameter servers, or is of another kind whose replicas are not
        on ranks.

    Notes
    -----
    **Collective** with the model's ranks. To be the last in the list of callbacks: what others do
    at the end of a batch is then saved, too. Their own state is not: an `EarlyStopping` begins
    again to count. At the end of `fit` it saves once more; a program that is started after that
    restores the weights, and trains no more.

    The same bits need the same ranks, and data in an order that a restart finds again:

    - arrays, shuffled or not, after ``keras.utils.set_random_seed``;
    - ``tf.data`` sets in a deterministic order whose ``shuffle`` has a seed, also one that
      reshuffles in each epoch; of an epoch the batches before the stop are read and dropped;
    - with ``steps_per_epoch``: the same; all batches of the epochs before are read and dropped;
    - a ``PyDataset`` of one worker that draws from Python's or NumPy's global generator.

    Not found again are generators that go on from epoch to epoch, and stateful random operations
    of TensorFlow in a data set or a layer. Keras's layers (`Dropout`, `RandomFlip`) draw from
    generators of their own, which are saved. Some operations of TensorFlow differ from run to run
    unless ``tf.config.experimental.enable_op_determinism()`` is called.

    Examples
    --------
    .. code-block:: python

        keras.utils.set_random_seed(1)
        strategy = mpistrat.tensorflow.MirroredStrategy()
        with strategy.scope():
            model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        preemption = mpistrat.tensorflow.PreemptionCallback("checkpoints", save_every_s=600)
        model.fit(images, labels, epochs=20, callbacks=[preemption])
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is a choice of its own
        self,
        directory: str,
        max_to_keep: int | None = 2,
        signals: Iterable[int] = (signal.SIGUSR1, signal.SIGTERM),
        save_every_steps: int | None = None,
        save_every_s: float | None = None,
        lead_s: float | Mapping[int, float] | None = None,
        exits: bool = True,
    ) -> None:
        super().__init__()
        self._directory, self._max_to_keep = directory, max_to_keep
        self._arguments: dict[str, Any] = {
            "signals": signals,
            "save_every_steps": save_every_steps,
            "save_every_s": save_every_s,
            "lead_s": lead_s,
            "exits": exits,
        }
        self._handler: PreemptionHandler | None = None
        self._resumes = self._is_new = False

    @property
    def has_stopped(self) -> bool:
        """Whether `fit` has ended because of a signal."""
        return self._handler is not None and self._handler.has_stopped

    # ------------------------------------------------------------------------------- training

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the latest checkpoint, if there is one. **Collective.**"""
        hooks.install()
        if self._handler is not None:  # the last fit has failed, and the program goes on
            self._handler.release()
        model, strategy = self.model, self.model.distribute_strategy
        communicator = _communicator(strategy)
        if not model.optimizer.built:
            with strategy.scope():
                model.optimizer.build(model.trainable_variables)
        self._state = state = TrainingState(model, strategy, communicator)
        manager = CheckpointManager(
            Checkpoint(fit=state), self._directory, max_to_keep=self._max_to_keep
        )
        path = manager.restore_or_initialize()
        self._handler = PreemptionHandler(manager, comm=communicator.origin, **self._arguments)
        is_done = self.params["epochs"] <= state.epochs_done
        self._is_new, self._resumes = path is None, path is not None and not is_done
        if path is not None:
            if communicator.rank == 0:
                self._tell(path, is_done)
            # Keras reads it after this, and begins there.
            model._initial_epoch = self.params["epochs"] if is_done else state.epoch

    def _tell(self, path: str, is_done: bool) -> None:
        state, seed = self._state, global_seed()
        place = f"epoch {state.epoch + 1}, after {state.batch} of its batches"
        if is_done:
            place = f"its end: there is nothing to train; remove {self._directory} to begin anew"
        _LOG.warning("fit goes on from %s at %s", path, place)
        if not is_done and (seed < 0 or seed != state.seed):
            _LOG.warning(
                "TensorFlow's global seed was %s and is %s: data that shuffle without a seed of"
                " their own come in another order than before; call"
                " keras.utils.set_random_seed(n) first",
                *("not set" if one < 0 else one for one in (state.seed, seed)),
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note where the epoch begins, or let it go on. **Local.**"""
        state = self._state
        if self._resumes:
            self._resumes = False
            state.begin_resumed()
            resume_at(self.model, Resumption(epoch - state.first_epoch, state.batch))
            return
        if self._is_new:
            self._is_new, state.first_epoch = False, epoch
        state.begin_epoch(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save if it is time, and stop if a rank has a signal. **Collective.**"""
        self._state.batch = batch + 1
        if self._handler is not None and self._handler.end_step():
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Keep the epoch's metrics. **Local.**"""
        if self._handler is not None:
            self._state.begin_validation()

    def on_test_end(self, logs: Any = None) -> None:
        """Keep them no more. **Local.**"""
        if self._handler is not None:
            self._state.end_validation()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop if a rank has a signal, within `fit`. **Collective.**"""
        if self._handler is not None and self._handler.check(wait=False):
            self.model.stop_evaluating = self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note that the next epoch comes. **Local.**"""
        if not self.has_stopped:
            self._state.begin_epoch(epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        """Save that the training is done. **Collective.**"""
        handler, state = self._handler, self._state
        self.model._initial_epoch = None  # else the next fit would begin there, too
        if handler is not None and not handler.has_stopped:
            if self.params["epochs"] > state.epochs_done:
                state.epochs_done = self.params["epochs"]
                handler.save()
            handler.close()
            self._handler = None


def _communicator(strategy: Any) -> Communicator:
    if is_ours(strategy):
        communicator: Communicator = strategy.communicator
        return communicator
    expected = expected_size()
    if has_servers(strategy) or (expected is not None and expected[1] > 1):
        raise UsageError(
            f"PreemptionCallback with a {type(strategy).__name__}; expected a strategy of"
            " mpistrat.tensorflow whose replicas are on the ranks, such as MirroredStrategy;"
            " elsewhere use keras.callbacks.BackupAndRestore"
        )
    return single_process_communicator()
