"""`PreemptionHandler`: save on all ranks after the same step when the job is about to be ended."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from mpistrat.checkpoint.checkpoint import Checkpoint
from mpistrat.checkpoint.objects import graph
from mpistrat.checkpoint.ranks.find_ranks import communicator_of
from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import all_or_none
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.errors import ClosedError
from mpistrat.preemption import outcome
from mpistrat.preemption.preempted import Preempted
from mpistrat.preemption.saving import Saver, Saves
from mpistrat.preemption.signals import SignalNotes, checked_signals, name_of
from mpistrat.preemption.stop_agreement import StopAgreement, Vote
from mpistrat.preemption.time_left import leads_of
from mpistrat.preemption.watch import Watch
from mpistrat.system import log

__all__ = ["PreemptionHandler"]

_LOG = log.get_logger(__name__)
_LABEL = "PreemptionHandler: all ranks call end_step() and check() in one order"


class PreemptionHandler:
    """Stop all ranks after the same step, saved, when a signal says that the job will be ended.

    Batch systems send a signal before they end a job: at its time limit, or for a job of higher
    priority. A handler that saved at once would save half a step, on some ranks. This one notes
    the signal. After the next steps all ranks know of it, whichever of them got it; then all save,
    and end with exit status 0. In the file ``MPISTRAT_OUTCOME_FILE`` the job's script finds
    ``REQUEUE``, or ``DONE`` after a program that has come to its end.

    Parameters
    ----------
    checkpoint_manager
        Saves, as a `mpistrat.train.CheckpointManager` does; with ``max_to_keep=2`` or more the
        checkpoint before the last one stays, too. None on ranks that only serve, workers and
        parameter servers: they ignore the signal, and end when the chief ends the job.
    signals
        Which announce the end. On Slurm ``#SBATCH --signal=USR1@300`` sends SIGUSR1 to all ranks;
        at the end of the time limit, and to jobs that are preempted, it sends SIGTERM. ``()``
        for none, and calls of :meth:`request_stop`.
    comm
        Communicator of the ranks that stop together, as of a strategy, which is duplicated.
        Default the ranks that save together.
    save_every_steps, save_every_s
        Save also after so many steps, or seconds, whichever is sooner: at the first agreement
        after that. This is what is left if no signal comes, or too late; None for never.
    lead_s
        Seconds between a signal and the end of the job: a number for all signals, or a dict of
        them. Default ``MPISTRAT_SIGNAL_LEAD`` (300), and 30 for SIGTERM, which is Slurm's default
        ``KillWait``; on partitions with a ``GraceTime`` give that: ``{signal.SIGTERM: 120}``. It
        ends at ``SLURM_JOB_END_TIME`` if that is sooner.
    exits
        Whether to raise `Preempted` after the last save. Else :meth:`end_step` returns True, and
        the program is to leave its loop, and to end.

    Raises
    ------
    UsageError
        An argument is wrong, the folder of ``MPISTRAT_OUTCOME_FILE`` is missing, or another
        handler is open. `ContextError` in another thread than the main one.

    Notes
    -----
    Making it, :meth:`end_step`, :meth:`check`, :meth:`save` and :meth:`close` are **Collective**.

    *Cost.* :meth:`end_step` begins an all-reduce of six words on a communicator of its own and
    ends that of the step before, so it waits for no rank that is less than a step behind. Of steps
    shorter than 50 ms only some do. Measured on two ranks of a machine with two cores, both busy:
    0.3 ms in steps of 60 ms, 6 us in steps of 1 ms, 0.5 us in steps of 0.1 ms (medians).

    *The last save* is begun only if there is time for it: as long as the mean of the saves before,
    kept beside the checkpoints over restarts, and twice their deviation. Else the last periodic
    one counts, and the log says so.

    *Ranks that do not come.* If the time is over and a rank has not stopped (it waits for a rank
    that never comes, or its save takes too long), a thread of it writes ``REQUEUE``, says where
    each rank is, and ends the job with status 75. A tenth of the lead, 15 s at most, is left then.

    *Unequal numbers of steps.* Ranks may call :meth:`end_step` unequally often, if those that are
    done leave the ``with`` block: they take part in saves there until all are done.

    *Forked children* (workers that load data) do not have the handler: they ignore signals that
    would end them, but end by SIGTERM.

    *Restart.* What the program needs to go on has to be in the checkpoint: variables, the
    optimizer, its number of steps, and ``dataset.position`` of a distributed data set.
    `mpistrat.random` draws by step, and needs nothing.

    References
    ----------
    tf.distribute.experimental.PreemptionCheckpointHandler; sbatch(1), --signal and --requeue.

    Examples
    --------
    .. code-block:: python

        strategy = mpistrat.MirroredStrategy()
        with strategy.scope():
            weights = mpistrat.Variable(np.zeros(3), aggregation=mpistrat.VariableAggregation.MEAN)
        data = strategy.experimental_distribute_dataset(dataset)
        state = mpistrat.train.Checkpoint(weights=weights, data=data.position)
        manager = mpistrat.train.CheckpointManager(state, "checkpoints", max_to_keep=2)
        manager.restore_or_initialize()
        with mpistrat.PreemptionHandler(manager, save_every_s=600) as handler:
            for batch in data:  # goes on after the last batch that was saved
                strategy.run(train_step, args=(batch,))
                handler.end_step()  # saves and ends the program on all ranks, if it has to
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        checkpoint_manager: Saver | None,
        signals: Iterable[int] = (signal.SIGUSR1, signal.SIGTERM),
        *,
        comm: Any = None,
        save_every_steps: int | None = None,
        save_every_s: float | None = None,
        lead_s: float | Mapping[int, float] | None = None,
        exits: bool = True,
    ) -> None:
        self._exits, self._serves = exits, checkpoint_manager is None
        self._ranks = _communicator(checkpoint_manager, comm)
        self._ranks.label = _LABEL
        is_first = self._ranks.rank == 0
        # One file, of rank 0; all ranks raise what is wrong with it.
        check = outcome.check if is_first else _no_check
        all_or_none(self._ranks, check, "PreemptionHandler()")
        with self._ranks.checking():
            self._saves = Saves(checkpoint_manager, save_every_steps, save_every_s, is_first)
            leads = leads_of(lead_s)
            self._notes = SignalNotes(checked_signals(signals))
            self._notes.install()
        self._agreement = StopAgreement(self._ranks, self._vote)
        self._watch = Watch(self._notes, leads, self._ranks)
        self._steps = 0
        self._is_active, self._is_closed, self._has_stopped = True, False, False
        self._begin_together()

    def _begin_together(self) -> None:
        """Wait for all ranks, of which one may have refused its arguments."""
        try:
            self._ranks.barrier()
        except BaseException:
            self.release()
            raise

    # ------------------------------------------------------------------------------- the steps

    def end_step(self) -> bool:
        """Say that a step is done; save if it is time, and stop if a rank has a signal.

        Returns
        -------
        bool
            Whether the ranks have stopped; True only if the handler does not exit.

        Raises
        ------
        Preempted
            All ranks have stopped after this step.
        CheckpointError
            A periodic save failed.
        """
        if self._has_stopped or self._is_closed:
            return self._refuse_or_stay()
        self._steps += 1
        self._saves.unsaved_steps += 1
        said = self._agreement.step()
        return said is not None and self._act(said)

    def check(self, wait: bool = True) -> bool:
        """Do what `end_step` does in long phases in which no step ends, such as an evaluation.

        On all ranks, where the state may be saved.

        Parameters
        ----------
        wait
            Whether to wait until all ranks have agreed, which takes as long as a short all-reduce.
            Else they have, as with `end_step`, by the next call.
        """
        if self._has_stopped or self._is_closed:
            return self._refuse_or_stay()
        said = self._agreement.now() if wait else self._agreement.step()
        return said is not None and self._act(said)

    def poll(self) -> bool:
        """Tell whether a signal has come to this rank, or the ranks have stopped. **Local.**

        For what one rank does alone, to cut it short. What it calls with other ranks it must not
        leave out by this: they may not have had the signal yet.
        """
        return bool(self._notes.came) or self._has_stopped

    def request_stop(self, reason: str = "") -> None:
        """Stop as if a signal had come; for any thread. **Local.**

        Parameters
        ----------
        reason
            For the log: what a cloud has announced, as ``on_preemption`` of
            ``mpistrat.tensorflow.TPUStrategy`` is told.
        """
        if reason:
            log.warn_alone(_LOG, f"asked to stop: {reason}")
        if not self._is_closed:
            self._notes.request()

    def save(self) -> str | None:
        """Save now, and measure how long it takes. **Collective**, blocks.

        Returns
        -------
        str or None
            The path of the checkpoint.
        """
        return self._saves.save()

    @property
    def has_stopped(self) -> bool:
        """Whether the ranks have stopped because of a signal."""
        return self._has_stopped

    # ----------------------------------------------------------------------------- agreement

    def _vote(self) -> Vote:
        came = list(self._notes.came)
        stop = came[0] << 32 | self._ranks.rank + 1 if came else 0
        deadline = self._watch.deadline if came else math.inf
        is_due = self._saves.is_due()
        if self._has_stopped:
            is_due = self._ranks.rank == 0 and self._saves.has_time(self._watch.deadline)
        return Vote(stop, self._is_active, is_due, self._saves.unsaved_steps > 0, deadline)

    def _act(self, said: Vote) -> bool:
        if said.stop:
            return self._stop(said)
        if said.is_due:
            self._saves.save()
        return False

    def _stop(self, said: Vote) -> bool:
        """Save if there is time, and stop; return False if all ranks were done anyway."""
        self._watch.agree(said.deadline)
        self._has_stopped = True
        # Once more, with what only rank 0 knows: ranks that are all done go on to their end.
        last = self._agreement.now()
        if not last.is_active:
            self._has_stopped = False
            return False
        if self._ranks.rank == 0:
            # Before the save, which the batch system may cut off.
            outcome.leave(outcome.REQUEUE)
            _LOG.warning("%s; all ranks stop after step %d", _cause(said), self._steps)
        text = self._saves.save_last(last.is_unsaved, last.is_due, self._watch.deadline)
        if self._ranks.rank == 0:
            _LOG.warning("%s", text)
        return self._leave()

    def _leave(self) -> bool:
        if self._exits:
            raise Preempted(self._steps, self._saves.latest)
        return True

    # ----------------------------------------------------------------------------------- end

    def close(self) -> None:
        """End, once all ranks have: put the handlers of signals back, leave ``DONE``. Idempotent.

        Raises
        ------
        Preempted
            Ranks that still made steps have stopped, and so does this one.

        Notes
        -----
        **Collective.** After a stop the handlers stay: a second signal must not end a rank before
        its program does.
        """
        if self._is_closed or self._has_stopped:
            return
        self._is_active = False
        while (said := self._agreement.now()).is_active or said.stop:
            if self._act(said):
                return
            if said.stop:
                break
        if self._ranks.rank == 0 and not self._serves:
            outcome.leave(outcome.DONE)
        self.release()
        self._ranks.close()

    def release(self) -> None:
        """Put the handlers of signals back without waiting for other ranks. **Local**, idempotent.

        After an error, where the program goes on. The handler cannot be used after that.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._notes.put_back()
        self._watch.close()
        self._notes.close()

    def _refuse_or_stay(self) -> bool:
        if self._is_closed:
            raise ClosedError("this PreemptionHandler was closed; make a new one on all ranks")
        return self._leave()

    def __enter__(self) -> PreemptionHandler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif not self._has_stopped and not self._is_closed:
            self.release()
            self._ranks.end(error)


def _cause(said: Vote) -> str:
    return f"{name_of(said.signal)} came to rank {said.rank}"


def _no_check() -> None:
    """Check nothing: another rank does."""


def _communicator(manager: Any, comm: Any) -> Communicator:
    """Make the communicator of the ranks that stop together."""
    if manager is None:
        return single_process_communicator()
    if comm is None:
        checkpoint = getattr(manager, "checkpoint", None)
        if isinstance(checkpoint, Checkpoint):
            found = communicator_of(graph.build(checkpoint).nodes)
            if found is None:
                return single_process_communicator()
            comm = found.origin
    return Communicator(comm)
