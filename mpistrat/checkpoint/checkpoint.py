"""`Checkpoint`: save objects together by name, and restore them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpistrat.checkpoint import restoring, saving
from mpistrat.checkpoint.files import pointer
from mpistrat.checkpoint.files.plain_values import NUMBERS
from mpistrat.checkpoint.files.pointer import Pointer
from mpistrat.checkpoint.objects import graph
from mpistrat.checkpoint.objects.children import Child, edges, may_lead
from mpistrat.checkpoint.objects.leaves import is_leaf
from mpistrat.checkpoint.objects.saveable import Lack, Late
from mpistrat.checkpoint.ranks.find_ranks import communicator_of
from mpistrat.checkpoint.ranks.saving_ranks import SavingRanks
from mpistrat.checkpoint.status import CheckpointStatus
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.variables.base import Variable
from mpistrat.system.log import get_logger, warn_once

__all__ = ["Checkpoint"]

T = TypeVar("T")

_LOG = get_logger(__name__)
_COUNTER = "save_counter"
_NOTHING = (
    "Checkpoint({}=...): nothing of it is saved. It has no variables yet, and numbers in"
    " attributes of an object are not saved: keep them in a dict, or give the object state_dict()"
    " and load_state_dict()"
)


class Checkpoint:
    """Save objects to files, and restore them from files.

    What is saved: variables, plain and distributed, wherever attributes, keys and elements lead to
    them, and a `ShardedVariable` as one, also where they lead to one of its parts; objects with
    ``state_dict`` and ``load_state_dict`` (`Stateful`), or with ``checkpoint_parts`` (`Parted`).
    NumPy arrays and numbers are saved where they were given to the checkpoint, themselves or in
    dicts and lists; not if they are attributes of other objects, where they are seldom meant. What
    several names lead to is saved once.

    Parameters
    ----------
    root
        An object whose attributes, keys or elements are saved by their own names.
    objects
        More objects, by name. They become attributes; more may be set later.

    Raises
    ------
    ArgumentTypeError
        An object of a type of which nothing can be saved.

    Notes
    -----
    All ranks of the strategy that the variables belong to have a checkpoint of the same objects.
    ``save``, ``write``, ``restore`` and ``read`` are **Collective** over them, block, and need a
    folder on a file system that they share. The ranks write at once, each about the same number of
    bytes. What parameter servers keep they write and read themselves, a file after the other, so
    let the workers end first (``coordinator.join``). A restore reads and checks all values before
    it changes any: each rank a share of what all of them restore, which they gather then. Only if
    that is interrupted, or a rank is lost, do some variables have new values and others old ones.
    A program that is alone, or a rank that restores other things than the others, holds all values
    twice for a moment. Any number of ranks can restore what another number has saved. Nothing is
    pickled. A program that is not in a strategy's scope and has no variables of one saves on each
    rank by itself.

    References
    ----------
    tf.train.Checkpoint. A checkpoint is a folder here, and there is no deferred restoration: make
    the objects before ``restore``.

    Examples
    --------
    >>> import tempfile, mpistrat
    >>> folder = tempfile.mkdtemp()
    >>> weights = mpistrat.Variable([1.0, 2.0])
    >>> path = Checkpoint(w=weights, step=3).save(f"{folder}/ckpt")
    >>> path == f"{folder}/ckpt-1"
    True
    >>> _ = weights.assign([0.0, 0.0])
    >>> again = Checkpoint(w=weights, step=0)
    >>> _ = again.restore(path).assert_consumed()
    >>> weights.numpy().tolist(), again.step
    ([1.0, 2.0], 3)
    """

    def __init__(self, root: Any = None, **objects: Any) -> None:
        if root is not None:
            _check("root", root)
        self._root = root
        for name, value in objects.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            _check(name, value)
        super().__setattr__(name, value)

    @property
    def save_counter(self) -> Variable:
        """Number of calls of :meth:`save`; saved and restored, too. Made when first used."""
        counter = vars(self).get(_COUNTER)
        if counter is None:
            made: Any = Variable.plain(initial_value=np.int64(0), trainable=False, name=_COUNTER)
            # Not by setattr(): it is a property without a setter, and `_check` refuses names of
            # members.
            counter = vars(self)[_COUNTER] = made
        result: Variable = counter
        return result

    def tracked_children(self) -> Iterator[Child]:
        """Return the objects that are saved, by name. **Local.**"""
        if self._root is not None:
            if is_leaf(self._root):
                yield Child("root", self._root, True)
            else:
                yield from edges(self._root, True)
        for name, value in vars(self).items():
            if name != "_root":
                yield Child(name, value, True, lambda new, name=name: setattr(self, name, new))  # type: ignore[misc]

    def lacks_for_restore(self) -> Lack | None:
        """See `mpistrat.checkpoint.objects.saveable.Late`: the root's names are its own."""
        return self._root.lacks_for_restore() if isinstance(self._root, Late) else None

    def save(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Save to the folder ``<file_prefix>-<save_counter>``, and make it the latest there.

        Parameters
        ----------
        file_prefix
            Path of the checkpoint up to its number, the same on all ranks. Folders are made.
        options
            Kept for TensorFlow's signature.

        Returns
        -------
        str
            The path of the checkpoint.

        Raises
        ------
        CheckpointError
            A rank could not write; all ranks say which, and why. The counter is as before.
        MismatchError
            The ranks save different things.
        """
        del options
        prefix = _checked("save: file_prefix", file_prefix)
        saved, _ = self.save_in(Path(prefix).absolute(), None, _point_to)
        return f"{os.path.dirname(prefix)}/{saved.name}" if "/" in prefix else saved.name

    def save_in(
        self, prefix: Path, number: int | None, record: Callable[[Path], T]
    ) -> tuple[Path, T]:
        """Do :meth:`save` for a manager. **Collective.**

        Parameters
        ----------
        prefix
            Absolute path up to the number.
        number
            Default the counter.
        record
            Called on rank 0 with the path of the complete checkpoint.

        Returns
        -------
        tuple
            The path, and what `record` returned.
        """
        with _Counted(self.save_counter) as count:
            # Counted before the save, since the counter is saved with its new value.
            path = Path(f"{prefix}-{count if number is None else number}")
            ranks = self._write(path)
            # The list of checkpoints never names one that is not complete.
            recorded = ranks.take_first(f"saving to {path}", lambda: record(path))
        return path, recorded

    def write(self, file_prefix: str | os.PathLike[str], options: Any = None) -> str:
        """Save to the folder `file_prefix`, without a number; otherwise as :meth:`save`."""
        del options
        prefix = _checked("write: file_prefix", file_prefix, may_be_folder=True)
        self._write(Path(prefix).absolute())
        return prefix

    def restore(
        self, save_path: str | os.PathLike[str] | None, options: Any = None
    ) -> CheckpointStatus:
        """Restore the objects from a checkpoint that :meth:`save` wrote.

        Parameters
        ----------
        save_path
            What :meth:`save` or `latest_checkpoint` returned, the same on all ranks; None restores
            nothing.
        options
            Kept for TensorFlow's signature.

        Returns
        -------
        CheckpointStatus
            What was restored; ask it, since names that are not in both are passed over.

        Raises
        ------
        CheckpointNotFoundError
            There is no checkpoint at that path, or it was never completed.
        CheckpointError
            A file is corrupt, cut off or missing: on all ranks, before anything was changed.
        UsageError
            A variable has another shape or dtype than in the checkpoint; nothing was changed.
        """
        del options
        _ = self.save_counter  # made now, to be restored
        if save_path is None:
            # Other ranks may have a path: then this raises on all ranks, and nobody waits for this
            # one.
            restoring.check_path(None, self._seen()[1])
            return CheckpointStatus(None, 0, [], [])
        return self.read(save_path)

    def read(self, save_path: str | os.PathLike[str], options: Any = None) -> CheckpointStatus:
        """Restore from a checkpoint that :meth:`write` wrote; it need not have the counter."""
        del options
        seen, ranks = self._seen()
        path = os.path.abspath(save_path)
        found = restoring.restore(seen, Path(path), ranks)
        missing = [name for name in found.missing if name != _COUNTER]
        unused = [name for name in found.unused if name != _COUNTER]
        # On each rank; it alone is no match of a program and a checkpoint.
        has_counter = _COUNTER in vars(self) and _COUNTER not in found.missing
        restored = found.restored - (ranks.size if has_counter else 0)
        return CheckpointStatus(path, restored, missing, unused)

    def _write(self, path: Path) -> SavingRanks:
        seen, ranks = self._seen()
        for name in () if seen.errors else seen.empty:
            warn_once(_LOG, f"{id(self)} {name}", _NOTHING.format(name))
        saving.save(seen, path, ranks)
        return ranks

    def _seen(self) -> tuple[graph.Graph, SavingRanks]:
        seen = graph.build(self)
        return seen, SavingRanks(communicator_of(seen.nodes))


def _checked(what: str, path: Any, may_be_folder: bool = False) -> str:
    """Return a path as text, if it ends with a name, or perhaps one and a slash."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(f"{what}={path!r} is a {type(path).__name__}; expected a path")
    text = str(os.fspath(path))
    name = os.path.basename(text.rstrip(os.sep) if may_be_folder else text)
    if name in ("", os.curdir, os.pardir):
        example = os.path.join(text, "ckpt")
        raise UsageError(f"{what}={text!r} ends with no name; expected one, as in {example!r}")
    return text


def _check(name: str, value: Any) -> None:
    if hasattr(Checkpoint, name):
        raise UsageError(f"Checkpoint({name}=...): it has a member of that name; choose another")
    if value is None or not (isinstance(value, (*NUMBERS, np.ndarray)) or may_lead(value)):
        raise ArgumentTypeError(
            f"Checkpoint({name}={value!r}): nothing of a {type(value).__name__} can be saved;"
            " expected variables, arrays, numbers, objects that hold variables, or one with"
            " state_dict() and load_state_dict()"
        )


def _point_to(path: Path) -> None:
    pointer.write(path.parent, Pointer([path.name], [time.time()]))


class _Counted:
    """Count a save, unless it fails."""

    def __init__(self, counter: Variable) -> None:
        self._counter = counter

    def __enter__(self) -> int:
        self._counter.assign_add(1)
        return int(self._counter)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._counter.assign_sub(1)
