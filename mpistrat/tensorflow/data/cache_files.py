"""Remove stale files of ``Dataset.cache(filename)``, which belong to an earlier run.

On several ranks there are ``filename`` and ``filename.rank_1``, or ``filename.files_0_of_2``, one
of each rank. A program that makes its cache anew removes ``filename`` only, and the other ranks
would go on with the old rows. So the files of a division are used together or not at all.
"""

from __future__ import annotations

import gc
import glob
from pathlib import Path
from typing import Any, NamedTuple

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.system.log import get_logger
from mpistrat.tensorflow.data import dataset_parts

__all__ = ["drop_stale"]

_LOG = get_logger(__name__)
_APART_S = 60.0  # between files of one run that ranks complete, at most; runs are further apart
_was_complete: dict[str, bool] = {}  # of this rank's caches, when they were distributed last


class _Told(NamedTuple):
    """The state of a cache's files on one rank."""

    own_s: float | None  # when its own file was completed; None if it is not there
    program_s: float | None  # the same, if it has the program's name, as one process's file has
    may_judge: bool  # whether it is seen for the first time, or was complete before


def drop_stale(dataset: Any, communicator: Communicator, name: str, has_own: bool) -> None:
    """Remove the cache files of earlier runs unless all ranks' files belong to one run.

    Files that this process writes are left alone: a cache is looked at when it is distributed for
    the first time, and later only if it was complete then, so that files were removed.

    Parameters
    ----------
    dataset
        What is to be distributed, equal on all ranks.
    communicator
        Of these ranks.
    name
        What the names of this rank's files have after the program's name.
    has_own
        Whether this rank has files of its own, not those of the program's name.

    Notes
    -----
    **Collective**, one gathering of a few bytes.
    """
    paths = dataset_parts.cache_files_of(dataset)
    own = [f"{path}.{name}" if has_own else path for path in paths]
    mine = [_told(path, has_own) for path in own]
    for path, one in zip(own, mine, strict=True):
        if one.own_s is None and path in _was_complete:
            _end_iterators()  # before the others hear of it: the names of theirs may begin like it
    # All files are looked at before any is removed: ranks may see one folder.
    with communicator.labelled("the files of a data set's cache"):
        everyone = communicator.allgather_object(mine)
    for path, *told in zip(own, *everyone, strict=False):  # equally many of equal data sets
        is_stale = _is_stale(told)
        if is_stale and path in _was_complete:
            _end_iterators()
        # A rank that cannot remove its file tells the others, who would go on without it.
        with communicator.checking():
            if is_stale and has_own and told[communicator.rank].own_s is not None:
                _remove(path)
        _was_complete[path] = not is_stale and all(one.own_s is not None for one in told)


def _end_iterators() -> None:
    """Destroy the iterators of before that Keras has left in cycles of garbage.

    One that has begun a cache, and has not completed it, removes all files whose names begin like
    the cache's when it is destroyed and finds no index: also those that are written anew by then.
    """
    gc.collect()


def _told(path: str, has_own: bool) -> _Told:
    own_s = _completed(path)
    return _Told(own_s, None if has_own else own_s, _was_complete.get(path, True))


def _completed(path: str) -> float | None:
    """Return the time at which a cache was completed, from its index."""
    try:
        return Path(f"{path}.index").stat().st_mtime
    except OSError:  # not there, or not a local file
        return None


def _is_stale(told: list[_Told]) -> bool:
    """Whether a rank's file is gone, or older than the program's by more than a run."""
    # A rank is writing its file: an incomplete set is no sign of a removed file.
    if not all(one.may_judge for one in told):
        return False
    ends = [one.own_s for one in told if one.own_s is not None]
    if len(ends) < len(told):
        return True
    program_s = told[0].program_s
    return program_s is not None and min(ends) < program_s - _APART_S


def _remove(path: str) -> None:
    """Remove the files of a cache, the index first: without it the others are not used."""
    data = Path(path).parent.glob(f"{glob.escape(Path(path).name)}.data-*")
    for file in [Path(f"{path}.index"), *data]:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"a cached file of another run cannot be removed: {error}; it does not belong to"
                f" those of the other ranks. Remove all files {path}* or give cache() another name"
            ) from error
        _LOG.warning("removed %s: a cached file that belongs to it was removed or made anew", file)
