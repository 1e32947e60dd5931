"""The case ``variables``: central storage, once a node, against a copy a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from mpistrat import (
    CentralStorageStrategy,
    Communicator,
    MirroredStrategy,
    Strategy,
    Variable,
    VariableAggregation,
)
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Timing, seconds, take_turns
from mpistrat.bench.options import Json, Rounds, told_to_the_user
from mpistrat.bench.sizes import format_bytes, parse_sizes
from mpistrat.optimizers import Adam

__all__ = ["command"]

Sizes: TypeAlias = Annotated[
    str, typer.Option(help="Bytes of the variable, as in '4KiB,16MiB'; it is of float32.")
]

_KINDS = ("central", "mirrored")
_TURN_BYTES = 1 << 22  # a turn has so many calls that they change about as much, up to 50


class _Side:
    """A variable of one strategy, and the calls on it that are timed."""

    def __init__(self, strategy: Strategy, nbytes: int) -> None:
        self._strategy = strategy
        self._delta = np.ones(max(nbytes // 4, 1), np.float32)
        with strategy.scope():
            self.variable: Any = Variable(
                lambda: np.zeros_like(self._delta), aggregation=VariableAggregation.SUM
            )
        self._optimizer = Adam()

    def calls(self) -> dict[str, Callable[[], object]]:
        """Return the timed calls by name."""
        pair = (self._delta, self.variable)
        run = self._strategy.run
        return {
            "assign_add in replicas": lambda: run(lambda: self.variable.assign_add(self._delta)),
            "assign_add across replicas": lambda: self.variable.assign_add(self._delta),
            "step of Adam": lambda: run(lambda: self._optimizer.apply_gradients([pair])),
        }

    def check(self) -> None:
        """Raise unless both additions give the expected value."""
        for name, call in self.calls().items():
            if name.startswith("assign_add"):
                call()
        if not (self.variable.value() == self._strategy.num_replicas_in_sync + 1).all():
            raise AssertionError(f"{self._strategy} added {self.variable.value()}")


def command(sizes: Sizes = "4KiB,16MiB,256MB", rounds: Rounds = 11, json: Json = None) -> None:
    """Time changes of a variable that a node has once against those of copies on each replica."""
    with told_to_the_user():
        all_bytes = parse_sizes(sizes)
    with CentralStorageStrategy() as central, MirroredStrategy() as mirrored:
        strategies = dict(zip(_KINDS, (central, mirrored), strict=True))
        communicator = central.extended.communicator
        console = Console(quiet=communicator.rank != 0, highlight=False, width=120)
        for nbytes in all_bytes:
            records = list(_records(strategies, communicator, nbytes, rounds))
            console.print(_table(nbytes, records), "", sep="\n")
            if json is not None and communicator.rank == 0:
                write_lines(json, records)


def _records(
    strategies: dict[str, Strategy], communicator: Communicator, nbytes: int, rounds: int
) -> Iterator[dict[str, Any]]:
    sides = {name: _Side(strategy, nbytes) for name, strategy in strategies.items()}
    for side in sides.values():
        side.check()
    repeats = max(1, min(50, _TURN_BYTES // max(nbytes, 1)))
    for what in next(iter(sides.values())).calls():
        calls = [side.calls()[what] for side in sides.values()]
        # Of each side, before the first turn: memory and slots of the optimizer are made on first
        # use.
        for call in calls:
            seconds(call, 2)
        timings = take_turns(calls, communicator, rounds, [repeats] * len(calls))
        times = {name: timing.record() for name, timing in zip(sides, timings, strict=True)}
        yield {
            "case": "variables",
            "what": what,
            "ranks": communicator.size,
            "bytes": nbytes,
            "times": times,
            "ratio": _ratio(*timings),
        }


def _ratio(central: Timing, mirrored: Timing) -> float:
    """Return the first time over the second: the median of the rounds' ratios."""
    return round(1 / central.speedup(mirrored), 3)


def _table(nbytes: int, records: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"
    for header in (f"variable of {format_bytes(nbytes)}", *_KINDS, "ratio"):
        table.add_column(header, justify="left" if header[:8] == "variable" else "right")
    for one in records:
        medians = (f"{one['times'][name]['median_us']:.1f}" for name in _KINDS)
        table.add_row(f"{one['what']}, median us", *medians, f"{one['ratio']:.2f}")
    return table
