"""Check that all ranks read one data set in the same order before each takes its share.

Rows are lost, and others come twice, where ranks read one data set in different orders: a
generator that shuffles with NumPy, ``interleave(deterministic=False)``, a split without a seed. So
digests of the batches are noted before they are divided, and compared at the end of each pass, and
now and then before.

Random augmentation is allowed: images may differ by rank if their labels agree. So the ranks have
to agree in one component (such as the labels) whose rows are not all equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from mpistrat import config
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow.graph import digest_op
from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.private import eager

__all__ = ["ADVICE", "OrderCheck", "keep_order_check", "order_check_of"]

_LABEL = "comparing the data that ranks read"
_NAME = "_mpistrat_order_check"

ADVICE = (
    "Make it the same on all ranks: give what shuffles or splits a seed"
    " (keras.utils.set_random_seed(0), random_state=0, np.random.default_rng(0)), and interleave"
    " and map deterministic=True; or let rank 0 make it for all:"
    " data = strategy.communicator.bcast_object(data); or, if each rank is to have rows of its"
    " own, use strategy.distribute_datasets_from_function. MPISTRAT_CHECKS=0 turns this check off"
)
"""The part of an error that says how ranks get the same data."""

_GENERATORS = (
    "One Python generator for several passes is another cause, if Dataset.from_generator gets a"
    " function that returns the same one each time: TensorFlow reads ahead and drops what it has"
    " read, on each rank another number of batches. Make a generator for each pass."
)


class OrderCheck:
    """The comparison of one data set over the ranks.

    Parameters
    ----------
    dataset
        The data set that each rank reads whole.
    communicator
        Of the ranks that share it.
    has_chance
        Whether TensorFlow's random operations make some of the rows: then a data set of one
        component, and components of floating-point numbers alone, are not compared.
    may_augment
        Whether it may change rows at random, by these operations or in Python: then one component
        that agrees is enough. Else all have to.

    Attributes
    ----------
    dataset
        The same elements; to be read in place of `dataset`.
    tensor
        By which functions are given what is distributed of them.

    Notes
    -----
    **Local.** For use where all ranks can take digests (:meth:`is_possible`).
    """

    def __init__(
        self,
        dataset: Any,
        communicator: Communicator,
        has_chance: bool = False,
        may_augment: bool = False,
    ) -> None:
        self._digests = digest_op.Digests(dataset)
        self._communicator = communicator
        self.dataset = self._digests.dataset
        self.tensor: Any = None
        is_floating = np.array([dtype.is_floating for dtype in self._digests.dtypes])
        self._is_chance = is_floating if has_chance else np.zeros_like(is_floating)
        self._may_augment = may_augment or has_chance
        self._is_evidence = ~np.array(self._digests.is_structure)
        self._settled, self._upto = 0, 0  # the last pass that was compared, and how far
        self._is_off = has_chance and (len(is_floating) == 1 or bool(is_floating.all()))

    @staticmethod
    def is_possible(communicator: Communicator, is_wanted: bool) -> bool:
        """Tell whether checks are on and all ranks can compute digests. **Collective.**"""
        if not config.checks():  # the same on all ranks
            return False
        return all(communicator.allgather_object(is_wanted and digest_op.is_available()))

    @property
    def newest(self) -> int:
        """The number of this rank's newest pass. **Local.**"""
        return self._digests.newest().number

    def compare(self, is_end: bool = False, number: int | None = None) -> None:
        """Compare the newest pass's batches that were read since the last comparison.

        Parameters
        ----------
        is_end
            Whether it is over on all ranks, so that they should have read equally many batches.
        number
            The pass that is meant, as :attr:`newest` was while it was that. Nothing is compared
            if another one has begun meanwhile on some rank. None for whichever is the newest.

        Raises
        ------
        UsageError
            On all ranks: their data differ.

        Notes
        -----
        **Collective**, of 48 bytes a batch and component.
        """
        if self._is_off:
            return
        newest, count = self._digests.newest()
        # Another pass has begun: its batches count from 0.
        if newest != self._settled:
            self._settled, self._upto = newest, 0
        is_meant = number is None or number == newest
        told = self._gathered(np.array([count, self._digests.components, self._upto, is_meant]))
        # All that follows is decided by gathered or reduced numbers, so that all ranks go on with
        # the same collectives, and all raise or none does.
        if not told[:, 3].all():
            return
        self._check_counts(told, is_end)
        # Ranks read ahead unequally: what is compared is what every rank has read by now.
        first, shortest = int(told[:, 2].min()), int(told[:, 0].min())
        if shortest <= first:
            return
        self._upto = shortest
        mine = self._digests.read(newest, first, shortest - first)
        is_wrong = self._differences(mine)  # by batch and component
        # A component whose rows are all equal agrees in any order, and is no evidence of one.
        is_varied = self._reduced(mine.is_varied, "max") > 0
        wrong = is_wrong.any(axis=0) & is_varied
        is_excused = self._may_augment and (is_varied & ~wrong & self._is_evidence).any()
        if (wrong & ~self._is_chance).any() and not is_excused:
            batch = first + int(np.argmax(is_wrong[:, wrong].any(axis=1)))
            self._refuse(batch, newest)

    def _differences(self, mine: digest_op.Marks) -> npt.NDArray[np.bool_]:
        """Return the batches and components in which the ranks differ. **Collective.**"""
        # The ends of the ranks' values are equal if and only if all are: two reductions, no
        # gathering.
        exact = self._reduced(mine.digests, "max") != self._reduced(mine.digests, "min")
        spread = self._reduced(mine.sums, "max") - self._reduced(mine.sums, "min")
        allowed = self._reduced(mine.allowed, "max")
        allowed = np.maximum(allowed, allowed.mean(axis=0))
        found: npt.NDArray[np.bool_] = exact | (spread > allowed)
        return found

    def _gathered(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with self._communicator.labelled(_LABEL):
            return self._communicator.allgather(array[None])

    def _reduced(self, array: npt.NDArray[Any], op: str) -> npt.NDArray[Any]:
        with self._communicator.labelled(_LABEL):
            return self._communicator.allreduce(array, op)

    def _check_counts(self, told: npt.NDArray[Any], is_end: bool) -> None:
        counts, components = told[:, :2].T.tolist()
        if len(set(components)) > 1:
            raise UsageError(
                f"tensors in an element of the data set, by rank: {components}; expected the same"
                f" data set on all ranks. {ADVICE}"
            )
        if is_end and len(set(counts)) > 1:
            raise UsageError(
                f"batches of the data set by rank: {counts}; expected equally many, since each"
                f" rank takes its share of every batch. {ADVICE}"
            )

    def _refuse(self, batch: int, number: int) -> None:
        """Raise an error that names a rank that differs from rank 0 in a batch. **Collective.**"""
        # One batch is small enough to be gathered, which tells the rank that differs.
        mine = self._digests.read(number, batch, 1)
        digests, sums = self._gathered(mine.digests), self._gathered(mine.sums)
        is_other = (digests != digests[0]) | (abs(sums - sums[0]) > mine.allowed)
        rank = int(np.argmax(is_other.any(axis=(1, 2))))
        raise UsageError(
            f"ranks read different data: batch {batch} is not the same on rank {rank} as on rank 0"
            f" (the {batch} before it are). Each rank takes its share of one order of the rows, so"
            f" that some are lost and others come twice. {_GENERATORS} {ADVICE}"
        )


_by_tensor: WeakValueDictionary[int, OrderCheck] = WeakValueDictionary()


def keep_order_check(distributed: Any, check: OrderCheck) -> None:
    """Attach the comparison to a distributed data set. **Local.**"""
    setattr(distributed, _NAME, check)
    # Kept, so that no other tensor gets its id while there is the check.
    check.tensor = private_data.variant_of(private_data.own_dataset(distributed))
    _by_tensor[id(check.tensor)] = check


def order_check_of(distributed: Any) -> OrderCheck | None:
    """Return the comparison of a distributed data set, or None. **Local.**"""
    found: OrderCheck | None = getattr(distributed, _NAME, None)
    return found


class _Iteration:
    """Compare at the end of a Python iterator, if no other pass has begun meanwhile."""

    def __init__(self, check: OrderCheck) -> None:
        self._check, self._number = check, 0

    def note(self) -> None:
        """Record the number of this pass, after its first element. **Local.**"""
        # It is the newest: a pass begins when the program first asks its iterator for an element,
        # not when it makes one. Nor does another thread begin one meanwhile: loops in two threads
        # would mix up the collectives at their ends.
        self._number = self._number or self._check.newest

    def end(self) -> None:
        """Compare. **Collective.**"""
        self._check.compare(is_end=True, number=self._number)


def _begun(distributed: Any) -> _Iteration | None:
    check = order_check_of(distributed)
    return None if check is None else _Iteration(check)


def _after_function(inputs: Sequence[Any]) -> None:
    """Compare the data sets that a ``tf.function`` has read from. **Collective.**"""
    # Runs after each tf.function of the process, of which most have no data set.
    if not _by_tensor:
        return
    found = (_by_tensor.get(id(tensor)) for tensor in inputs)
    for check in [one for one in found if one is not None]:
        check.compare()


private_data.on_passes(_begun)
eager.after_functions(_after_function)
