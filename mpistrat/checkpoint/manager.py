"""`CheckpointManager`: keep the last checkpoints of a folder, and delete the others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from numbers import Integral
from pathlib import Path
from typing import Any

from mpistrat.checkpoint.checkpoint import Checkpoint
from mpistrat.checkpoint.files import disk, index, pointer
from mpistrat.checkpoint.files.pointer import Pointer
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.system import log
from mpistrat.system.files import atomic_files

__all__ = ["CheckpointManager"]

_LOG = log.get_logger(__name__)
_HOUR_S = 3600.0


class CheckpointManager:
    """Save checkpoints to a folder, and delete all except the last ones.

    It goes on with what is in the folder already.

    Parameters
    ----------
    checkpoint
        What is saved and restored.
    directory
        The folder, the same on all ranks. It is made by the first save.
    max_to_keep
        How many checkpoints to keep; None for all.
    keep_checkpoint_every_n_hours
        Keep for good one checkpoint for each so many hours, beyond `max_to_keep`.
    checkpoint_name
        Checkpoints are called ``<checkpoint_name>-<number>``.
    step_counter
        A variable or another thing that ``int()`` takes, for `checkpoint_interval`.
    checkpoint_interval
        :meth:`save` does nothing until the counter has grown so much since the last save.
    init_fn
        Called by :meth:`restore_or_initialize` where there is no checkpoint.

    Raises
    ------
    UsageError
        `max_to_keep` is not above 0, or an interval without a counter.
    CheckpointError
        The folder has a file ``checkpoint`` that is not ours.

    Notes
    -----
    Methods are **Collective** as those of `Checkpoint` are. Rank 0 keeps the list, in the file
    ``checkpoint``, and deletes: always after a new checkpoint is complete. A crash at any time
    leaves the last complete one.

    References
    ----------
    tf.train.CheckpointManager.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments are tf.train's
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
    ) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ArgumentTypeError(
                f"CheckpointManager of a {type(checkpoint).__name__}; expected a Checkpoint"
            )
        if max_to_keep is not None and not (isinstance(max_to_keep, Integral) and max_to_keep > 0):
            raise UsageError(
                f"max_to_keep={max_to_keep!r}; expected a whole number above 0, or None"
            )
        if checkpoint_interval is not None and step_counter is None:
            raise UsageError("checkpoint_interval without a step_counter; pass both")
        if Path(checkpoint_name).name != checkpoint_name:
            raise UsageError(f"checkpoint_name={checkpoint_name!r}; expected a name, not a path")
        self._checkpoint, self._directory = checkpoint, os.fspath(directory)
        self._folder = Path(directory).absolute()
        self._max_to_keep, self._keep_hours = max_to_keep, keep_checkpoint_every_n_hours
        self._name, self._init_fn = checkpoint_name, init_fn
        self._step_counter, self._interval = step_counter, checkpoint_interval
        self._last_step: int | None = None
        said = pointer.read(self._folder)
        rows = zip(said.names, said.times, strict=True)
        kept = {name: saved for name, saved in rows if self._is_complete(name)}
        self._pointer = _pointer(kept, said.last_preserved or time.time())
        # A crash may have left the rest of what was being deleted.
        self._doomed = [name for name in said.names if name not in kept]

    def _is_complete(self, name: str) -> bool:
        return (self._folder / name / index.NAME).is_file()

    @property
    def directory(self) -> str:
        """The folder."""
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint object whose objects are saved."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """Steps between saves, or None."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """Paths of the checkpoints that are kept for now, the latest last. **Local.**"""
        return [os.path.join(self._directory, name) for name in self._pointer.names]

    @property
    def latest_checkpoint(self) -> str | None:
        """Path of the latest checkpoint, or None. **Local.**"""
        return self.checkpoints[-1] if self._pointer.names else None

    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: Any = None,
    ) -> str | None:
        """Save a checkpoint, then delete the oldest above ``max_to_keep``.

        Parameters
        ----------
        checkpoint_number
            Its number, as ``int()`` takes it; default the checkpoint's ``save_counter``.
        check_interval
            Whether `checkpoint_interval` counts.
        options
            Kept for TensorFlow's signature.

        Returns
        -------
        str or None
            The path of the checkpoint; None if it was not time yet.

        Raises
        ------
        CheckpointError
            As ``Checkpoint.save``. The checkpoints are as before.
        """
        del options
        step = None if self._interval is None else int(self._step_counter)
        if check_interval and self._is_too_early(step):
            return None
        number = None if checkpoint_number is None else int(checkpoint_number)
        if number is not None and number < 0:
            raise UsageError(f"checkpoint_number={number}; expected a number of at least 0")
        # `_record` runs on rank 0; all ranks get the list that it returns, and keep that.
        path, made = self._checkpoint.save_in(self._folder / self._name, number, self._record)
        self._pointer, self._last_step = made, step
        return os.path.join(self._directory, path.name)

    def _is_too_early(self, step: int | None) -> bool:
        if step is None or self._interval is None or self._last_step is None:
            return False
        return step - self._last_step < self._interval

    def _record(self, path: Path) -> Pointer:
        """Add a new checkpoint to the list, then delete the oldest. **Local.**"""
        rows = dict(zip(self._pointer.names, self._pointer.times, strict=True))
        # One that is saved again under its number becomes the latest, at the end of the dict.
        rows.pop(path.name, None)
        rows[path.name] = time.time()
        preserved = self._pointer.last_preserved
        dropped = [name for name in self._doomed if name != path.name]
        while self._max_to_keep is not None and len(rows) > self._max_to_keep:
            name, saved = next(iter(rows.items()))
            del rows[name]
            if self._keep_hours and saved - self._keep_hours * _HOUR_S >= preserved:
                preserved = saved
            else:
                dropped.append(name)
        made = _pointer(rows, preserved)
        # Listed until it is gone, so that a crash meanwhile leaves nothing for good.
        pointer.write(self._folder, _pointer({**dict.fromkeys(dropped, 0.0), **rows}, preserved))
        if dropped:
            self._doomed = [name for name in dropped if not _is_deleted(self._folder / name)]
            left = dict.fromkeys(self._doomed, 0.0)
            pointer.write(self._folder, _pointer({**left, **rows}, preserved))
        return made

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint; call ``init_fn`` if there is none.

        Returns
        -------
        str or None
            The path that was restored.
        """
        latest = self.latest_checkpoint
        status = self._checkpoint.restore(latest)
        if latest is not None:
            if not status.num_restored:
                status.assert_nontrivial_match()
            if self._interval is not None:
                self._last_step = int(self._step_counter)
        elif self._init_fn is not None:
            self._init_fn()
        return latest


def _pointer(rows: dict[str, float], preserved: float) -> Pointer:
    return Pointer(list(rows), list(rows.values()), preserved)


def _is_deleted(path: Path) -> bool:
    """Delete a checkpoint, its index first: without it the other files are no checkpoint."""
    if not path.is_dir():
        return True
    try:
        (path / index.NAME).unlink(missing_ok=True)
        atomic_files.sync(path)
        disk.remove_files(path, "data-*.safetensors")
        disk.remove_files(path, f".{index.NAME}.*")
        disk.remove_empty([path])
    except OSError as error:  # the new one is complete: that is no reason to stop
        _LOG.warning("the old checkpoint %s could not be deleted: %s", path, error)
        return False
    return True
