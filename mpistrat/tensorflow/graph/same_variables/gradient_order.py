"""Compare over the ranks of which variables gradients are, when a list of them is first summed.

Ranks that bring gradients of equal shapes in unequal orders would add those of different
variables. Variables have numbers, in the order of their creation, which is a collective and so
the same on all ranks. The numbers are the label of the first sum of a list; later sums of it need
none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mpistrat.collectives import Communicator
from mpistrat.errors import MismatchError
from mpistrat.tensorflow.graph.tensor_collective import Finish, SameShape, Start
from mpistrat.types import Array

__all__ = ["OF_GRADIENTS", "GradientList", "VariableNumbers", "gradients_of"]

OF_GRADIENTS = "_mpistrat_gradients"
"""Set on the options of a reduction: the `GradientList` that it is of."""

_LABEL = re.compile(r"\(gradients of variables ([\d ]+)\)")
_ATTRIBUTE = "_mpistrat_number"  # set on variables
_LISTS = "_mpistrat_lists"  # set on the first variable of a list: they go with it
_MOST_LISTS = 100
_SHOWN = 3


class GradientList:
    """Of which variables the gradients of a list are.

    Parameters
    ----------
    numbers
        Of the variables, in the order of the list.

    Attributes
    ----------
    label
        Of the calls that sum them: the numbers of the variables, as text.
    sums
        The collectives that sum them, by their places.
    """

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.label = f"gradients of variables {' '.join(map(str, numbers))}"
        self.sums: dict[str | None, SameShape] = {}
        self._numbers = numbers
        self._parts: dict[tuple[int, ...], GradientList] = {}

    def part(self, members: Sequence[int]) -> GradientList:
        """Return the list of those with these indices. **Local.**"""
        key = tuple(members)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = GradientList(tuple(self._numbers[i] for i in key))
        return found


def gradients_of(variables: Sequence[Any]) -> GradientList | None:
    """Return the list of the gradients of `variables`; None if one has no number. **Local.**"""
    # Not getattr, with which TensorFlow's variables may be read.
    numbers = tuple([vars(variable).get(_ATTRIBUTE) for variable in variables])
    if None in numbers:
        return None
    lists: dict[tuple[int, ...], GradientList] = vars(variables[0]).setdefault(_LISTS, {})
    found = lists.get(numbers)
    if found is None:
        if len(lists) == _MOST_LISTS:  # of a program whose steps take other layers each
            lists.clear()
        found = lists[numbers] = GradientList(numbers)
    return found


class ComparedOnce:
    """The start of a collective that compares until one of its calls has ended.

    Attributes
    ----------
    after
        Called then.
    """

    def __init__(self, compared: Callable[[Callable[[], Any]], Any], start: Start) -> None:
        self._compared, self._start = compared, start
        self._is_over = False
        self.after: Callable[[], None] = lambda: None

    def __call__(self, sources: list[Array], results: list[Array]) -> Finish | None:
        """Start it; see `SameShape`."""
        if self._is_over:
            return self._start(sources, results)
        finish = self._compared(partial(self._start, sources, results))
        if finish is None:
            self._end()
            return None

        def ended(timeout: float | None) -> None:
            self._compared(partial(finish, timeout))
            self._end()

        return ended

    def _end(self) -> None:
        # All ranks come here at the end of the same call.
        self._is_over = True
        self.after()


class VariableNumbers:
    """The numbers of the variables of one strategy.

    Parameters
    ----------
    communicator
        The communicator of the strategy.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._names: list[str] = []  # of this rank's variables, by number

    def assign(self, variable: Any, name: str) -> None:
        """Give the next number to a variable that all ranks have made. **Local.**"""
        setattr(variable, _ATTRIBUTE, len(self._names))
        self._names.append(name)

    def compared(self, label: str | None, call: Callable[[], Any]) -> Any:
        """Return ``call()``, a collective with this label, which may be one of `GradientList`."""
        try:
            with self._communicator.labelled(label):
                return call()
        except MismatchError as error:
            raise self._explained(error) from None

    def compared_once(self, gradients: GradientList, start: Start) -> ComparedOnce:
        """Return `start` with the label of `gradients` until a call has ended. **Local.**"""
        return ComparedOnce(partial(self.compared, gradients.label), start)

    def _explained(self, error: MismatchError) -> MismatchError:
        """Return an error that names the variables, if that is what ranks differ in."""
        labels = {rank: _LABEL.search(text) for rank, text in error.calls.items()}
        lists = {r: [*map(int, one[1].split())] for r, one in labels.items() if one is not None}
        bare = {_LABEL.sub("", text).partition(" at ")[0] for text in error.calls.values()}
        if len(lists) < len(labels) or len(bare) > 1:
            return error
        return MismatchError(self._in_words(lists), error.calls)

    def _in_words(self, lists: Mapping[int, Sequence[int]]) -> str:
        columns = list(zip(*lists.values(), strict=True))
        first = next(i for i, column in enumerate(columns) if len(set(column)) > 1)
        rows = [
            f"  rank {rank}: {', '.join(map(self._name, numbers[first : first + _SHOWN]))}"
            for rank, numbers in lists.items()
        ]
        return "\n".join(
            [
                "the ranks bring gradients of a strategy's variables in different orders:",
                *rows,
                "they would be added to those of other variables: give apply_gradients the same"
                " pairs in one order on all ranks, such as zip(gradients,"
                " model.trainable_variables); sets have another order in each process",
            ]
        )

    def _name(self, number: int) -> str:
        return f"'{self._names[number]}' (variable {number})"
