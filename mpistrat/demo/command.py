"""The demo's command line: parse its options, train, report."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import mpistrat
from mpistrat.cluster.launcher.launch_variables import expected_rank
from mpistrat.demo.devices import Device, strategy_on
from mpistrat.demo.digits import load
from mpistrat.demo.report import Report
from mpistrat.demo.same_bits import digests, outliers
from mpistrat.demo.timed_all_reduce import TimedAllReduce
from mpistrat.demo.train import Epoch, Options, Trainer
from mpistrat.errors import BackendUnavailableError

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(  # noqa: PLR0913, PLR0917 - its arguments are the options
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a global batch.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of the first epoch; it decays.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and of the order.")] = 0,
    device: Annotated[
        Device, typer.Option(help="Of the replicas. auto: the GPUs bound to a rank, else a CPU.")
    ] = Device.AUTO,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas on each rank, on CPUs unless --device gpu."),
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--lines",
            help="Redraw one bar, or write lines. Default: lines under mpirun, which hides where"
            " its output goes; else a bar if that is a terminal.",
        ),
    ] = None,
) -> None:
    """Train a small network on handwritten digits, on every rank that runs this."""
    timer = TimedAllReduce()
    strategy = _strategy(device, devices, timer)
    communicator = strategy.communicator
    digits = load()
    # Every rank's BLAS would start a thread for each core, and they would wait for each other;
    # matrices as small as these gain nothing from several.
    threadpool_limits(1)
    trainer = Trainer(strategy, digits, Options(epochs, batch_size, learning_rate, seed), timer)
    with Report(communicator.rank == 0, epochs, trainer.steps, live) as report:
        report.begin(strategy, digits, batch_size)
        done = []
        for number in range(1, epochs + 1):
            done.append(trainer.run_epoch(number, report.step))
            report.epoch(done[-1], _share(strategy, done[-1:]))
        report.end(done, _share(strategy, done))
        hashes = digests(strategy, trainer.variables)
        if others := outliers(hashes):
            report.other_bits(hashes, others)
            raise typer.Exit(1)
        report.same_bits(hashes)


def _strategy(
    device: Device, devices: int | None, timer: TimedAllReduce
) -> mpistrat.MirroredStrategy:
    """Return a strategy on the devices; without the GPUs asked for say so, and exit with 2."""
    try:
        return strategy_on(device, devices, timer)
    except BackendUnavailableError as error:
        _, rank = expected_rank() or ("", 0)
        if rank == 0:
            # CuPy's own error has many lines, some of them rules.
            reason = " ".join(word for word in str(error).split() if word.strip("="))
            print(f"mpistrat.demo: {reason}", file=sys.stderr)
        raise typer.Exit(2) from None


def _share(strategy: mpistrat.Strategy, epochs: list[Epoch]) -> float:
    """Return the part of the time spent communicating, the mean over all ranks."""
    communication_s = sum(epoch.communication_s for epoch in epochs)
    share = communication_s / sum(epoch.duration_s for epoch in epochs)
    return float(strategy.reduce("MEAN", share))
