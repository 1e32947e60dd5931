"""Print the demo's progress on rank 0: a bar in a terminal, else a line an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import mpistrat
from mpistrat.cluster.launcher.launch_variables import was_launched
from mpistrat.demo.devices import are_gpus
from mpistrat.demo.digits import Digits
from mpistrat.demo.train import Epoch

__all__ = ["Report"]

_CELLS = 20


class Report:
    """The output of one run; a context manager that removes the bar at its end.

    Parameters
    ----------
    is_speaker
        False on the ranks that say nothing.
    epochs, steps
        Number of epochs, and of steps in each.
    live
        Whether to redraw one bar in place. None: if the output is a terminal and no launcher
        stands between. (MPICH gives its ranks pipes, Open MPI gives them terminals, and neither
        tells where its own output goes.) Without it each epoch's line carries a piece of a bar.
    """

    def __init__(self, is_speaker: bool, epochs: int, steps: int, live: bool | None) -> None:
        if live is None and was_launched():
            live = False
        self._console = Console(quiet=not is_speaker, force_terminal=live, highlight=False)
        self._epochs = epochs
        self._bar: Progress | None = None
        if is_speaker and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("training", total=epochs * steps)

    def __enter__(self) -> Report:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, strategy: mpistrat.Strategy, digits: Digits, batch_size: int) -> None:
        """Print the network, the data and the strategy."""
        communicator = strategy.communicator
        on_gpus = ", on GPUs" if are_gpus(strategy) else ""
        self._line(
            f"replicas: {strategy.num_replicas_in_sync}, ranks: {communicator.size}, backend:"
            f" {communicator.backend.name}, mpistrat {mpistrat.__version__}{on_gpus}"
        )
        self._line(
            f"{len(digits.train)} handwritten digits to learn from, {len(digits.test)} to test"
            f" on, global batches of {batch_size}"
        )

    def step(self) -> None:
        """Move the bar by a step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def epoch(self, epoch: Epoch, share: float) -> None:
        """Write the line of an epoch; `share` is the part of its time spent communicating."""
        bar = "" if self._bar is not None else f" [{self._cells(epoch.number)}]"
        width = len(str(self._epochs))
        self._line(
            f"epoch {epoch.number:{width}}/{self._epochs}{bar} loss {epoch.loss:.4f}"
            f"  test accuracy {epoch.accuracy:6.2%}"
            f"  {epoch.samples / epoch.duration_s:6.0f} samples/s  communicating {share:3.0%}"
        )

    def end(self, epochs: Sequence[Epoch], share: float) -> None:
        """Print the summary of all epochs."""
        duration_s = sum(epoch.duration_s for epoch in epochs)
        samples = sum(epoch.samples for epoch in epochs)
        self._line(
            f"test accuracy {epochs[-1].accuracy:.2%} after {duration_s:.1f} s of training,"
            f" {samples / duration_s:.0f} samples/s"
        )
        self._line(
            f"communicating {share:.0%} of that time: all-reduces of gradients and losses, waiting"
            " for slower ranks included, mean over the ranks"
        )

    def same_bits(self, hashes: Sequence[str]) -> None:
        """Print that the replicas hold the same bits."""
        self._line(f"all replicas hold the same bits: {len(hashes)} x sha256 {hashes[0][:16]}...")

    def other_bits(self, hashes: Sequence[str], outliers: Sequence[int]) -> None:
        """Print the replicas whose bits differ from replica 0's."""
        self._line(f"ERROR: replica 0 holds sha256 {hashes[0][:16]}...; these hold other bits:")
        for replica in outliers:
            self._line(f"  replica {replica}: {hashes[replica][:16]}...")

    def _cells(self, done: int) -> str:
        filled = _CELLS * done // self._epochs
        return "#" * filled + "." * (_CELLS - filled)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
